package ripgrep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/packet"
)

// Where a helper has what it was started with. Commands that it starts get these numbers for their own, so it moves away from
// them first.
const (
	givenSocket  = 0
	givenProgram = 1
	firstOwn     = 10
)

// server is a helper.
type server struct {
	fd      int
	program string

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc
	under   sync.WaitGroup
}

// Serve is the life of a helper: it has rg search until whoever started it is gone, and returns the exit status.
func Serve() int {
	// A signal to everything in the session is for commands.
	signal.Notify(make(chan os.Signal, 1))
	runtime.GOMAXPROCS(1) // threads count as the session's processes
	socket, err := unix.FcntlInt(givenSocket, unix.F_DUPFD_CLOEXEC, firstOwn)
	if err != nil {
		return 1
	}
	program, err := unix.FcntlInt(givenProgram, unix.F_DUPFD_CLOEXEC, firstOwn)
	if err != nil {
		return 1
	}
	if err := unix.CloseRange(0, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 1
	}
	s := &server{fd: socket, program: "/proc/self/fd/" + strconv.Itoa(program), cancels: map[uint64]context.CancelFunc{}}
	err = s.loop()
	s.mu.Lock()
	for _, cancel := range s.cancels {
		cancel()
	}
	s.mu.Unlock()
	s.under.Wait()
	if err != io.EOF {
		return 1
	}
	return 0
}

func (s *server) loop() error {
	buf := new(packet.Buffer)
	for {
		msg, fds, err := buf.Receive(s.fd)
		if err != nil {
			return err
		}
		kind, n, rest, err := split(msg)
		switch {
		case err == nil && kind == kindSearch && len(fds) == 1:
			ctx, cancel := context.WithCancel(context.Background())
			s.mu.Lock()
			s.cancels[n] = cancel
			s.mu.Unlock()
			pattern := string(rest)
			s.under.Go(func() {
				defer unix.Close(fds[0])
				s.search(ctx, n, fds[0], pattern)
				s.mu.Lock()
				delete(s.cancels, n)
				s.mu.Unlock()
				cancel()
			})
		case err == nil && kind == kindCancel && len(fds) == 0:
			s.mu.Lock()
			if cancel := s.cancels[n]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
		default:
			packet.CloseAll(fds)
			return errMalformed
		}
	}
}

// search answers one search. An answer that cannot be sent is for nobody.
func (s *server) search(ctx context.Context, n uint64, dir int, pattern string) {
	found, err := s.run(ctx, dir, pattern)
	if err != nil {
		_ = packet.Send(s.fd, message(kindFailed, n, []byte(err.Error())))
		return
	}
	_ = packet.Send(s.fd, message(kindNames, n, found))
}

// options are the command line but for the pattern. Hidden files and those of ignore files are searched, no configuration is
// read, nothing is decoded and no link is followed: as the native engine does it. What is not said on stderr did not happen.
var options = []string{
	"--no-config", "--no-ignore", "--hidden", "--no-follow", "--encoding=none", "--no-mmap",
	"--files-with-matches", "--null", "--color=never", "--threads=" + strconv.Itoa(min(4, runtime.NumCPU())),
}

var errTooMany = errors.New("it names more than is believed")

func (s *server) run(ctx context.Context, dir int, pattern string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.program, append(options, "--regexp="+pattern, "--", "./")...)
	cmd.Args[0] = "rg"
	cmd.Dir = "/proc/self/fd/" + strconv.Itoa(dir)
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	stdout, stderr := &capped{most: mostNames}, &capped{most: 1 << 20}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Start()
	if err == nil {
		// It has hardly begun. Whatever it holds is the session's memory, which is everybody's inside.
		limited := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: mostData, Max: mostData}, nil)
		if limited != nil {
			_ = cmd.Process.Kill()
		}
		err = cmp.Or(limited, cmd.Wait())
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case stdout.over || stderr.over:
		return nil, errTooMany
	case err == nil:
		return stdout.b, nil
	case errors.As(err, &exit) && exit.ExitCode() == 1 && len(stdout.b)+len(stderr.b) == 0:
		return nil, nil // nothing was found
	case errors.As(err, &exit) && exit.ExitCode() == 2 && harmless(string(stderr.b)):
		return stdout.b, nil
	}
	return nil, fmt.Errorf("%w: %.200s", err, string(stderr.b))
}

// harmless reports whether ripgrep has complained of nothing but what it may not read, and of what is gone: files that have no
// lines for anybody. A name with a newline makes two lines of one, of which the first is no such complaint.
func harmless(stderr string) bool {
	lines := 0
	for line := range strings.Lines(stderr) {
		line, whole := strings.CutSuffix(line, "\n")
		if !whole || !strings.HasSuffix(line, " (os error 13)") && !strings.HasSuffix(line, " (os error 2)") {
			return false
		}
		lines++
	}
	return lines > 0
}

// capped keeps what is written up to a limit; more ends the writer. It has no other way in: io.Copy looks for one.
type capped struct {
	b    []byte
	most int
	over bool
}

func (c *capped) Write(b []byte) (int, error) {
	if len(c.b)+len(b) > c.most {
		c.over = true
		return 0, errTooMany
	}
	c.b = append(c.b, b...)
	return len(b), nil
}
