//go:build man

package main

import (
	"fmt"
	"os"

	"github.com/stockade-dev/stockade/internal/manual"
)

// A program that is built with this tag writes its manual pages.
func init() {
	if dir, ok := manual.Asked(); ok {
		if err := manual.Write(root(), "8", dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}
