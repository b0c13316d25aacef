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
	c := &copying{ctx: ctx, report: BackupReport{Directory: to}, told: told}
	if c.from, err = os.OpenRoot(state); err != nil {
		return nil, err
	}
	defer c.from.Close()
	if c.to, err = os.OpenRoot(to); err != nil {
		return nil, err
	}
	defer c.to.Close()
	before, err := c.anchor()
	if err != nil {
		return nil, err
	}
	for _, part := range backupOrder {
		if err := fs.WalkDir(c.from.FS(), part, c.entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	// Last: until now nobody else could reach into the copy.
	return &c.report, c.directory(".")
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

// copying is one try. The directories on both sides can be those of a user with less than ours, who may change them meanwhile: names are looked up
// below two descriptors, no link at their end is followed, and what a file is, and whose, is asked of what was opened.
type copying struct {
	ctx      context.Context
	from, to *os.Root
	report   BackupReport
	told     func(BackupReport)
}

// anchor is what a trimmed journal begins with; nil for one that was never trimmed.
func (c *copying) anchor() ([]byte, error) {
	f, _, err := c.open("journal/anchor", fs.FileMode.IsRegular)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
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
	if d.IsDir() {
		return c.directory(name)
	}
	n, err := c.file(name)
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

// directory makes one, or gives one that there is its mode and owner.
func (c *copying) directory(name string) error {
	in, info, err := c.open(name, fs.FileMode.IsDir)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := c.to.MkdirAll(name, 0o700); err != nil {
		return err
	}
	out, err := c.to.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(own(out, info), out.Close())
}

// file copies one file.
func (c *copying) file(name string) (n int64, err error) {
	in, info, err := c.open(name, fs.FileMode.IsRegular)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	if err := c.to.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return 0, err
	}
	out, err := c.to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if n, err = io.Copy(out, in); err != nil {
		return n, err
	}
	return n, own(out, info)
}

// open opens an original and says what was opened. It does not wait for who could write to it.
func (c *copying) open(name string, is func(fs.FileMode) bool) (*os.File, fs.FileInfo, error) {
	named, err := c.from.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !is(named.Mode()) {
		return nil, nil, fmt.Errorf("%s is neither a file nor a directory: %v", name, named.Mode())
	}
	f, err := c.from.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(named, info) { // a root follows what links lead to within it
		err = fmt.Errorf("%s became another file", name)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// own gives a copy the mode of the original, and its owner where that can be done: the supervisor that is started on it may
// be a user of its own.
func own(copied *os.File, original fs.FileInfo) error {
	if os.Geteuid() == 0 {
		st := original.Sys().(*syscall.Stat_t)
		if err := copied.Chown(int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return copied.Chmod(original.Mode().Perm())
}
