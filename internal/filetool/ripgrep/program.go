package ripgrep

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/stockade-dev/stockade/internal/memfile"
)

// oldest is the first major version whose options and pattern language are ours.
const oldest = 13

// Program reads the rg at a path, checks that it is one that can be given to sessions, and returns it as a file that has no name, that nobody can
// change any more and that everybody may execute, and nobody of a session's may read: what runs it is no business of other
// commands. version is what it calls itself. It is run for that, as the operator who named it. The caller closes it.
func Program(ctx context.Context, path string) (_ *os.File, version string, err error) {
	fail := func(err error) (*os.File, string, error) { return nil, "", fmt.Errorf("ripgrep %s: %w", path, err) }
	content, err := os.ReadFile(path)
	if err != nil {
		return fail(err)
	}
	if err := alone(content); err != nil {
		return fail(err)
	}
	f, err := memfile.OfProgram("rg", content, 0o111)
	if err != nil {
		return fail(err)
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	cmd := exec.CommandContext(ctx, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), "--no-config", "--version")
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err == nil {
		version, err = parseVersion(string(out))
	}
	if err != nil {
		f.Close()
		return fail(err)
	}
	return f, version, nil
}

// alone reports whether a program needs nothing else to start: an interpreter and libraries would be the session's own, and then the
// session decides what is found.
func alone(content []byte) error {
	p, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if p.Type != elf.ET_EXEC && p.Type != elf.ET_DYN {
		return errors.New("it is no program")
	}
	for _, part := range p.Progs {
		if part.Type == elf.PT_INTERP {
			return errors.New("it is not statically linked: in a session it would run with what it finds there")
		}
	}
	return nil
}

// parseVersion reads what rg --version prints first: ripgrep 15.0.0 (rev …).
func parseVersion(out string) (string, error) {
	words := strings.Fields(out)
	if len(words) < 2 || words[0] != "ripgrep" {
		return "", fmt.Errorf("it is no ripgrep: it calls itself %.40q", out)
	}
	major, _, _ := strings.Cut(words[1], ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldest {
		return "", fmt.Errorf("it is version %.20s, and %d is the oldest that will do", words[1], oldest)
	}
	return words[1], nil
}
