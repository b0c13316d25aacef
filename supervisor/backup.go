package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/durable"
)

// backupOrder is what a copy is made of. What names something stands before what it names, so that a copy of a directory in
// use has everything that it names; what is appended meanwhile is an interrupted end to whoever opens the copy. Output in
// spool/ is a convenience of those who follow commands: receipts name what is kept of it.
var backupOrder = []string{"snapshots", "journal/anchor", "journal/checkpoints", "journal", "policy/active.json", "policy", "blobs", "salt"}

// backupTries is how often a copy is begun anew because the journal was trimmed beneath it.
const backupTries = 3

var errTrimmed = errors.New("the journal was trimmed meanwhile")

// BackupReport is what a copy has, and what was found when it was read again.
type BackupReport struct {
	Directory string      `json:"directory"`
	Files     int         `json:"files"`
	Bytes     int64       `json:"bytes"`
	Check     *FsckReport `json:"check"`
}

// Backup copies a state directory, in use or not, to a directory that does not exist yet, and checks every byte of the copy.
// The private key is part of it: who has the copy can go on with the journal. told hears of each file, with the sums so far. An error,
// a copy that is not sound, or the end of ctx leaves nothing.
func Backup(ctx context.Context, state, to string, told func(BackupReport)) (r *BackupReport, err error) {
	for range backupTries {
		if r, err = backup(ctx, state, to, told); !errors.Is(err, errTrimmed) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", state, err)
	}
	return r, nil
}

func backup(ctx context.Context, state, to string, told func(BackupReport)) (_ *BackupReport, err error) {
	if err := os.Mkdir(to, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(to))
		}
	}()
	c := &copying{ctx: ctx, from: state, report: BackupReport{Directory: to}, told: told}
	if err := c.owned(to, state); err != nil {
		return nil, err
	}
	before, err := c.anchor()
	if err != nil {
		return nil, err
	}
	for _, part := range backupOrder {
		if err := filepath.WalkDir(filepath.Join(state, part), c.entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	after, err := c.anchor()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(before, after) {
		return nil, errTrimmed
	}
	if err := settleOnDisk(to); err != nil {
		return nil, err
	}
	if c.report.Check, err = Fsck(to, FsckOptions{Deep: true}); err != nil {
		return nil, err
	}
	if !c.report.Check.OK {
		return nil, fmt.Errorf("the copy is not sound: %s", firstLoss(c.report.Check.Findings))
	}
	return &c.report, nil
}

// settleOnDisk makes everything below dir durable, and its own name.
func settleOnDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return os.NewSyscallError("syncfs", err)
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// firstLoss is the first finding that is more than the trace of an interruption.
func firstLoss(findings []Finding) string {
	for _, f := range findings {
		if !f.Benign {
			return fmt.Sprintf("%s: %s: %s", f.Code, f.Subject, f.Detail)
		}
	}
	return "unknown"
}

type copying struct {
	ctx    context.Context
	from   string
	report BackupReport
	told   func(BackupReport)
}

// anchor is what a trimmed journal begins with; nil for one that was never trimmed.
func (c *copying) anchor() ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(c.from, "journal", "anchor"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// entry copies what WalkDir comes by, but for what is there already, what has gone meanwhile, and what is only being written.
func (c *copying) entry(name string, d fs.DirEntry, err error) error {
	switch {
	case err != nil:
		return err
	case d.IsDir() && d.Name() == "incoming":
		return fs.SkipDir
	case d.Name() == "lock" || strings.HasSuffix(name, ".tmp"):
		return nil
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	rel, err := filepath.Rel(c.from, name)
	if err != nil {
		return err
	}
	to := filepath.Join(c.report.Directory, rel)
	switch {
	case d.IsDir():
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		return c.owned(to, name)
	case !d.Type().IsRegular():
		return fmt.Errorf("%s is neither a file nor a directory", name)
	}
	n, err := c.file(name, to)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	c.report.Files++
	c.report.Bytes += n
	c.told(c.report)
	return nil
}

// file copies one file.
func (c *copying) file(name, to string) (n int64, err error) {
	in, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return 0, err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if n, err = io.Copy(out, in); err != nil {
		return n, err
	}
	return n, c.owned(to, name)
}

// owned gives a copy the mode of the original, and its owner where that can be done: the supervisor that is started on it may
// be a user of its own.
func (c *copying) owned(to, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	if os.Geteuid() == 0 {
		if err := os.Chown(to, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(to, info.Mode().Perm())
}
