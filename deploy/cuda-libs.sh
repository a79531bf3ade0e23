#!/usr/bin/env bash
# cuda-libs.sh [FOLDER...] - links to the host's CUDA libraries in lib/cuda, where the CUDA back end
# looks for them: for a host whose dynamic linker does not know where they are.
#
# Each library is taken from the first place that has it: the folders given, the nvidia packages of
# Python, CUDA's own folder, what the dynamic linker knows. Run it again after CUDA was updated.
# PYTHON names another interpreter than python3, CUDA_HOME another folder than /usr/local/cuda.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=${here%/*}
to=$root/lib/cuda # of a bundle or package
[ "${here##*/}" = bin ] || to=$root/build/lib/cuda
backend=$to/../shunt-dev-cuda.so
# cuDNN loads its parts, and nvrtc, by name when it needs them.
wanted=(libcudart.so.13 libcublasLt.so.13 libcudnn.so.9 libnvrtc.so.13)

python_folders() {
    "${PYTHON:-python3}" -c '
import glob, site, sys
for p in dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()]):
    if p:
        print(*glob.glob(p + "/nvidia/*/lib"), sep="\n")' 2>/dev/null || true
}

folders=("$@")
while IFS= read -r dir; do folders+=("$dir"); done < <(python_folders | sed '/^$/d')
folders+=("${CUDA_HOME:-/usr/local/cuda}/lib64")
while IFS= read -r dir; do folders+=("$dir"); done < <(
    { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } |
        sed -nE 's#.*=> (.*)/lib(cudart|cublasLt|cudnn)\.so\..*#\1#p' | sort -u)

rm -rf "$to"
mkdir -p "$to"
missing=()
for lib in "${wanted[@]}"; do
    found=
    for dir in "${folders[@]}"; do
        [ -e "$dir/$lib" ] || continue
        found=$dir
        break
    done
    if [ -z "$found" ]; then
        missing+=("$lib")
        continue
    fi
    ln -sfn "$(realpath "$found/$lib")" "$to/$lib"
    # libcudnn_*.so.9, libnvrtc-builtins.so.13.0: parts of the same release, from the same folder
    for part in "$found/${lib%%.so*}"[_-]*.so.*; do
        if [ -e "$part" ]; then ln -sfn "$(realpath "$part")" "$to/$(basename "$part")"; fi
    done
    echo "$lib from $found"
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "cuda-libs: not found: ${missing[*]}; name their folders as arguments" >&2
    exit 1
fi
if [ -e "$backend" ] && unresolved=$(ldd "$backend" | grep "not found"); then
    echo "cuda-libs: $(realpath "$backend") still lacks: $unresolved" >&2
    exit 1
fi
