package runc

import (
	"os"
	"testing"

	"github.com/stockade-dev/stockade/sandbox"
)

// reaped is a child whose process id belongs to somebody else as soon as it has been waited for.
type reaped struct{}

func (reaped) Signal(os.Signal) error          { return nil }
func (reaped) Wait() (*os.ProcessState, error) { return nil, nil }

// Who comes late to a session does not go by the process id that its init had.
func TestReaped(t *testing.T) {
	s := &session{box: &box{process: reaped{}, dir: t.TempDir(), pid: os.Getpid()}}
	looks := map[string]func() (*os.File, error){"root": s.root, "mount namespace": s.mountNamespace}
	for name, look := range looks {
		f, err := look()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f.Close()
	}
	s.box.kill()
	for name, look := range looks {
		if f, err := look(); codeOf(err) != sandbox.CodeNoSession {
			t.Errorf("%s of another process: %v %v", name, f, err)
		}
	}
	if err := s.box.alive(func(int) error { t.Error("called"); return nil }); err == nil {
		t.Error("it is alive")
	}
}
