#compdef zero
# SPDX-License-Identifier: Apache-2.0
# Completes zero in zsh. Where zero has nothing to offer, this completes file names.
local line
local -a offered
for line in "${(@f)$($words[1] __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
  [[ -n $line ]] && offered+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
done
if (( ${#offered} )); then
  _describe zero offered
else
  _files
fi
