// Package prompt knows where the commands of an interactive shell begin and end. A shell that it knows (bash, and what
// keeps to POSIX) is given a script which has it put marks into its output, by OSC 133 as terminals know them: before
// a prompt, behind it, before a command's output, and behind it with the exit code.
//
// It promises that a mark is what the shell itself wrote: each carries a nonce, which is in no environment, argument or file
// that the shell's children get. What a program prints is never one, whatever it prints. A program that reads the shell's
// own memory has the nonce, and so can have what the shell's start-up files start before its first prompt,
// when the script is still to be read; both have the shell, too. Taking marks out of output is a function of the output alone, so
// that whoever reads it, and from wherever on, sees the same.
//
// It does not emulate a terminal, and does not touch a shell that it does not know: of that it says only whether the
// last line looks like a prompt.
package prompt
