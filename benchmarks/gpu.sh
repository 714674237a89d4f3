#!/bin/sh
# What one GPU does: step, head, views, memory, and CIFAR-10 with ResNet-18, as JSON in OUT.
#
#     sh benchmarks/gpu.sh gpu OUT cifar10 cifar10:test
#     sh benchmarks/gpu.sh tiny OUT photos photos:test
#
# `gpu` ends within 27 minutes, as each part has its own limit; `tiny` runs on a CPU, in minutes.
# What is in OUT already is left out, so a second call goes on where one ended. PARTS names some
# parts alone, METHODS other methods, and PYTHON another interpreter.
[ $# -eq 4 ] || { echo "usage: sh benchmarks/gpu.sh gpu|tiny OUT TRAIN TEST" >&2; exit 2; }
scale=$1 out=$2 train=$3 test=$4
case $scale in
gpu)
    device=cuda encoder=resnet18 batch=512 epochs=20 timed="--tolerance 0.05"
    rows="10000 1000000" modes="default reduce-overhead" few= patience=1
    ;;
tiny)
    device=cpu encoder=resnet-tiny batch=16 epochs=1 timed="--rounds 2 --tolerance inf"
    rows="200 2000" modes=default few="--max-examples 64" patience=10
    ;;
*) echo "error: $scale is no scale: give gpu or tiny" >&2; exit 2 ;;
esac
python=${PYTHON:-python} unfinished=
mkdir -p "$out" || exit 2

# Run a command for some seconds at most; its output, or the file that it writes, is OUT/NAME.json.
part() {
    name=$1 seconds=$(($2 * patience))
    shift 2
    case " ${PARTS:-$name} " in *" $name "*) ;; *) return ;; esac
    [ ! -s "$out/$name.json" ] || return
    timeout "$seconds" "$python" -m "$@" > "$out/$name.part" || {
        [ $? -ne 130 ] || exit 130
        unfinished="$unfinished $name"
        rm -f "$out/$name.part"
        return
    }
    if [ -s "$out/$name.json" ]; then rm "$out/$name.part"; else mv "$out/$name.part" "$out/$name.json"; fi
}

part step 240 benchmarks.ratios.step --encoder $encoder --batch-size $batch $timed \
    --json "$out/step.json"
part head 180 benchmarks.ratios.head --encoder $encoder --batch-size $batch --sizes $rows \
    ${few:+--rounds 2} --json "$out/head.json"
part catch_up 30 benchmarks.ratios.catch_up $timed --json "$out/catch_up.json"
part views 60 benchmarks.ratios.views --batch-size $batch $timed --json "$out/views.json"
part compiled 150 benchmarks.ratios.compiled --encoder $encoder --batch-size $batch $timed \
    --methods view-contrast --modes $modes --json "$out/compiled.json"
for method in ${METHODS:-view-contrast s-diet simclr}; do
    run="--method $method --encoder $encoder --batch-size $batch --epochs $epochs --device $device"
    part "memory_$method" 60 widefield plan "$train" $run $few --json
    part "train_$method" 200 widefield pretrain "$train" $run $few --out "$out/$method" --json
    part "probe_$method" 60 widefield probe "$out/$method" "$test" --train-data "$train" $few --json
done
[ -z "$unfinished" ] || { echo "not finished:$unfinished" >&2; exit 1; }
