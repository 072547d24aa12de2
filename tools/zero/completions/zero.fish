# SPDX-License-Identifier: Apache-2.0
# Completes zero in fish. Where zero has nothing to offer, this completes file names.
function __zero_complete
    set -l words (commandline -opc)
    set -l begun (commandline -ct)
    set -l offered ($words[1] __complete $words[2..-1] "$begun" 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\n' $offered
    else
        __fish_complete_path "$begun"
    end
end
complete -c zero -f -a '(__zero_complete)'
