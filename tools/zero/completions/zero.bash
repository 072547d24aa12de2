# SPDX-License-Identifier: Apache-2.0
# Completes zero in bash. Where zero has nothing to offer, bash completes file names.
_zero() {
  local IFS=$'\n'
  # shellcheck disable=SC2207  # a line each
  COMPREPLY=($("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o bashdefault -o default -F _zero zero
