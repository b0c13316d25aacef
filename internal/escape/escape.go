// Package escape takes the sequences out of text that a terminal acts on and does not show: what moves its cursor, colours,
// names its window, or draws anything but letters.
//
// It promises that what it takes out was begun by an ESC, and that none is left that a sequence follows. It does not emulate a terminal, and leaves single control
// characters, an ESC without a sequence among them, to whoever shows the text.
package escape

import "regexp"

// sequences are control sequences, commands to the system, strings that end with ST, and the short ones, in this order (ECMA-48; BEL ends
// a command to the system as xterm has it).
var sequences = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])`)

// Strip is text without them.
func Strip(text string) string { return sequences.ReplaceAllString(text, "") }
