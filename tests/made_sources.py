"""The same labeled images in every form in which sources hold them."""

import csv
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from made_images import saved

CLASSES = ("ant", "bee", "cat")


def encoded(count: int, side: int = 12) -> dict[str, bytes]:
    """Return noise as PNG files by name, in folders of three classes."""
    rng = np.random.default_rng(0)
    files = {}
    for i in range(count):
        content = saved(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        files[f"{CLASSES[3 * i // count]}/{i:03d}.png"] = content
    return files


def class_of(name: str) -> int:
    return CLASSES.index(name.split("/")[0])


def folder(files: dict[str, bytes], path: Path) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def table(files: dict[str, bytes]) -> pa.Table:
    names = [CLASSES[class_of(name)] for name in files]
    columns = {"image": pa.array(files.values(), pa.binary()), "class": names, "path": [*files]}
    return pa.table(columns)


def parquet(files: dict[str, bytes], path: Path) -> Path:
    pq.write_table(table(files), path / "images.parquet", row_group_size=7)
    return path / "images.parquet"


def arrow(files: dict[str, bytes], path: Path) -> Path:
    with pa.ipc.new_file(path / "images.arrow", table(files).schema) as writer:
        writer.write_table(table(files), max_chunksize=7)
    return path / "images.arrow"


def hugging_face(files: dict[str, bytes], path: Path, shards: int = 2) -> Path:
    """Write what `datasets.Dataset.save_to_disk` writes."""
    rows = [{"image": {"bytes": x, "path": None}, "class": class_of(n)} for n, x in files.items()]
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    features = {"image": {"_type": "Image"}, "class": {"_type": "ClassLabel", "names": CLASSES}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema({"image": image, "class": pa.int64()}, metadata)
    path = path / "saved"
    path.mkdir()
    parts = [f"data-{i:05d}-of-{shards:05d}.arrow" for i in range(shards)]
    bounds = np.linspace(0, len(rows), shards + 1).astype(int)
    for part, first, last in zip(parts, bounds, bounds[1:], strict=False):
        with pa.ipc.new_stream(str(path / part), schema) as writer:
            writer.write_table(pa.Table.from_pylist(rows[first:last], schema), max_chunksize=5)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": p} for p in parts]}))
    return path


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def tar(files: dict[str, bytes], path: Path) -> Path:
    with tarfile.open(path / "images.tar", "w") as archive:
        for name, content in reversed(files.items()):  # sorted when it is read
            add(archive, name, content)
    return path / "images.tar"


def shards(files: dict[str, bytes], path: Path) -> Path:
    """Write WebDataset shards of ten samples each."""
    path = path / "shards"
    path.mkdir()
    for first in range(0, len(files), 10):
        with tarfile.open(path / f"{first // 10:04d}.tar", "w") as archive:
            for name in list(files)[first : first + 10]:
                key = name.replace("/", "_").removesuffix(".png")
                add(archive, f"{key}.png", files[name])
                add(archive, f"{key}.json", json.dumps({"class": name.split("/")[0]}).encode())
    return path


def zipped(files: dict[str, bytes], path: Path) -> Path:
    with zipfile.ZipFile(path / "images.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path / "images.zip"


def manifest(files: dict[str, bytes], path: Path) -> Path:
    folder(files, path / "listed")
    with (path / "list.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "class"])
        rows.writerows([f"listed/{name}", name.split("/")[0]] for name in files)
    return path / "list.csv"


def manifest_parquet(files: dict[str, bytes], path: Path) -> Path:
    folder(files, path / "columns")
    rows = {"file_name": list(files), "class": [name.split("/")[0] for name in files]}
    pq.write_table(pa.table(rows), path / "columns" / "list.parquet")
    return path / "columns" / "list.parquet"


def npz(files: dict[str, bytes], path: Path) -> Path:
    x = np.stack([np.asarray(Image.open(io.BytesIO(content))) for content in files.values()])
    y = np.array([CLASSES[class_of(name)] for name in files])
    np.savez(path / "images.npz", **{"x": x, "class": y})
    return path / "images.npz"


FORMS: dict[str, Callable[[dict[str, bytes], Path], Path]] = {
    "folder": folder,
    "parquet": parquet,
    "arrow": arrow,
    "hugging face": hugging_face,
    "tar": tar,
    "webdataset": shards,
    "zip": zipped,
    "csv": manifest,
    "parquet of paths": manifest_parquet,
    "npz": npz,
}
