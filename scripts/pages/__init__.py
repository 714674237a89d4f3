"""What commands write into the README and the docs: one file for each page's subject."""
