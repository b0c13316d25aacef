package prompt

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Hooks has a shell put marks into its output: the environment that has it read the script, and the script, which it reads
// from descriptor fd once it has read its own files, and closes.
type Hooks struct {
	Env    []string // NAME=value, instead of what there is of these names
	Script string
	Begins bool // it marks where the output of a command begins, and not only where that ends
}

// interactive are the arguments with which a shell is one that asks for commands. Whoever gives others runs a script,
// or knows what he does.
var interactive = []string{"-i", "-l", "-il", "-li", "--login", "--norc", "--noprofile", "--posix", "--noediting"}

// HooksOf returns the hooks of a shell, or false for a program that is none that is known.
func HooksOf(argv, env []string, nonce string, fd int) (Hooks, bool) {
	for _, arg := range argv[1:] {
		if !slices.Contains(interactive, arg) {
			return Hooks{}, false
		}
	}
	n := strconv.Itoa(fd)
	switch strings.TrimPrefix(path.Base(argv[0]), "-") {
	case "bash":
		user, _ := value(env, "PROMPT_COMMAND")
		return Hooks{
			// It is for everybody to see, and not the script.
			Env:    []string{"PROMPT_COMMAND=IFS= read -r -d '' -u " + n + " REPLY; exec " + n + "<&-; eval \"$REPLY\""},
			Script: fill(bashScript, nonce) + "PROMPT_COMMAND=" + quote(join("__stockade_prompt", user)) + "\n__stockade_first=1 __stockade_prompt\n",
			Begins: true,
		}, true
	case "sh", "dash", "ash":
		user, _ := value(env, "ENV")
		script := "exec " + n + "<&-\nunset ENV\n" + fill(posixScript, nonce)
		if user != "" {
			script += "ENV=" + quote(user) + "; export ENV\n[ -r \"$ENV\" ] && . \"$ENV\"\n"
		}
		return Hooks{Env: []string{"ENV=/dev/fd/" + n}, Script: script + posixPrompt}, true
	}
	return Hooks{}, false
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ";")
}

func fill(script, nonce string) string { return strings.ReplaceAll(script, "NONCE", nonce) }

// quote is a word as a shell reads it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func value(env []string, name string) (string, bool) {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// bashScript keeps the marks in variables that are not exported, and out of PS1 and PS0, which may be: to whoever inherits
// those they say nothing. (\001 and \002 are what \[ and \] become: between them nothing takes room on the line.) The marks of
// PROMPT_COMMAND go to the terminal, wherever the shell's own output goes by now. The status of the last command
// comes first and is left as it was, with the options: a shell under set -e or -u must not end of this, nor tell of it
// under -x.
const bashScript = `unset REPLY
export -n PROMPT_COMMAND
__stockade_mark=$'\e]133;NONCE;'
__stockade_input=$'\001\e]133;NONCE;B\a\002'
__stockade_output=$'\e]133;NONCE;C\a'
declare +x __stockade_mark __stockade_input __stockade_output
__stockade_prompt() {
	local status=$? flags=$- -
	set +eux
	case ${PS1-} in *'${__stockade_input-}'*) ;; *) PS1=${PS1-}'${__stockade_input-}' ;; esac
	case ${PS0-} in *'${__stockade_output-}'*) ;; *) PS0='${__stockade_output-}'${PS0-} ;; esac
	if [ -n "${__stockade_first-}" ]; then
		builtin printf '%sN;C\a%sA\a' "$__stockade_mark" "$__stockade_mark" >/dev/tty
	else
		builtin printf '%sD;%d\a%sA\a' "$__stockade_mark" "$status" "$__stockade_mark" >/dev/tty
	fi
	case $flags in *e*) return 0 ;; esac
	return $status
} 2>/dev/null
`

// posixScript has no hook but the prompt, in which $? is the status of the last command. So it is not marked where a
// command begins.
const posixScript = `__stockade_mark=$(printf '\033]133;NONCE;')
__stockade_bell=$(printf '\007')
`

// Begin, typed before a command, marks where the output of that begins, in a shell that does not do so by itself.
const Begin = `printf '%sC%s' "$__stockade_mark" "$__stockade_bell"; `

const posixPrompt = `PS1='${__stockade_mark}D;$?${__stockade_bell}${__stockade_mark}A${__stockade_bell}'"${PS1-\$ }"'${__stockade_mark}B${__stockade_bell}'
printf '%sN;%s' "$__stockade_mark" "$__stockade_bell" >/dev/tty
`
