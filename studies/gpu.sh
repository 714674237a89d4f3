#!/bin/sh
# All studies, those that an accelerator decides first. A second call goes on where one ended.
#
#     sh studies/gpu.sh gpu --data FOLDER
#
# SCALE is gpu, cpu or tiny; further words are options of `python -m studies run`. STUDIES names
# others, and PYTHON another interpreter.
scale=${1:-gpu}
[ $# -eq 0 ] || shift
unfinished=
for id in ${STUDIES:-SD-T3 SD-T5-CIFAR-10 SD-T6 FD-T1 FD-T3 all}; do
    ${PYTHON:-python} -m studies run "$id" --scale "$scale" --processes 1 "$@"
    status=$?
    [ $status -ne 130 ] || exit 130
    [ $status -eq 0 ] || unfinished="$unfinished $id"
done
[ -z "$unfinished" ] || { echo "not finished:$unfinished" >&2; exit 1; }
