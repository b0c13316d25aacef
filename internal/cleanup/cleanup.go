// Package cleanup undoes a half-built thing: each step of a constructor adds its
// undo where it is made, and the constructor releases them when it succeeds.
package cleanup

// Stack holds undo steps. The zero value is ready to use.
type Stack struct {
	steps []func()
}

// Add pushes one undo step.
func (s *Stack) Add(step func()) { s.steps = append(s.steps, step) }

// Run performs the steps in reverse order, each once.
func (s *Stack) Run() {
	for len(s.steps) > 0 {
		last := len(s.steps) - 1
		step := s.steps[last]
		s.steps = s.steps[:last]
		step()
	}
}

// Release forgets the steps: the built thing owns them now.
func (s *Stack) Release() { s.steps = nil }
