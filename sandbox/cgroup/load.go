package cgroup

import (
	"fmt"
	"strings"

	"github.com/stockade-dev/stockade/sandbox"
)

// Load is what the session uses now. Init's own threads are not counted, its memory is.
func (s *Session) Load() (sandbox.Load, error) {
	memory, pids := s.unified.file("memory.current"), s.unified.file("pids.current")
	for _, g := range s.v1 {
		switch g.controller {
		case "memory":
			memory = g.file("memory.usage_in_bytes")
		case "pids":
			pids = g.file("pids.current")
		}
	}
	var l sandbox.Load
	var err error
	if l.MemoryBytes, err = number(memory); err != nil {
		return l, fmt.Errorf("load: %w", err)
	}
	if l.PIDs, err = number(pids); err != nil {
		return l, fmt.Errorf("load: %w", err)
	}
	threads, err := readFile(s.unified.child("init").file("cgroup.threads"))
	if err != nil {
		return l, fmt.Errorf("load: %w", err)
	}
	// The two are not read at one instant.
	l.PIDs = max(0, l.PIDs-int64(strings.Count(threads, "\n")))
	used, err := s.CPUTime()
	if err != nil {
		return l, fmt.Errorf("load: %w", err)
	}
	l.CPUNS = int64(used)
	return l, nil
}
