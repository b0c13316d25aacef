package stage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// Journal is the name of the list of what is being changed together. It lies in the directory that all of it is below, so
// whoever comes to one of the files by a path comes by the list too.
const Journal = Prefix + "journal"

// JournalLine is a regular expression, in a language that everybody speaks, that matches a line of every journal that was not torn before its
// list was whole, and of few other files.
const JournalLine = "^sum [0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]$"

// All does all changes or none.
//
//	list     the journal says which names will be written, made and removed; synced
//	stage    every new content is written beside its name; synced
//	commit   the journal gets the inode numbers of what was staged; synced. From here on the change will happen
//	give     every name is given its new content by an exchange, what is to go is renamed to a name of ours
//	clean    directories are synced, the journal is removed, then the old contents
//
// A crash before commit leaves names of ours, which [Recover] removes by the list. A crash after it leaves some names given and
// some not: Recover gives the rest. A failure after commit (a full disk, another editor's change) is noted in
// the journal first and then undone, so that a crash in the middle of undoing is undone as well. What cannot be undone either (a directory
// that has become read-only) stays with its journal, for the next Recover.
func All(t *tree.Tree, changes []*Change, hook Hook) *file.Fault {
	if len(changes) == 1 && !changes[0].Remove {
		return Put(changes[0], hook)
	}
	tx, fault := begin(t, changes, hook)
	if fault != nil {
		return fault
	}
	defer tx.close()
	if fault := tx.stage(); fault != nil {
		tx.abandon()
		return fault
	}
	if fault := tx.commit(); fault != nil {
		tx.abandon()
		return fault
	}
	for _, c := range changes {
		var fault *file.Fault
		if c.Remove {
			fault = c.take(hook)
		} else {
			fault = c.give(hook, false)
		}
		if fault != nil {
			if !tx.undo() {
				fault.Message += "; a part of it is done and could not be undone yet: that is tried again when a tool comes here next"
			}
			return fault
		}
	}
	return tx.clean()
}

// transaction is the run of an All.
type transaction struct {
	changes []*Change
	hook    Hook
	home    int    // of the journal
	base    string // its path in the tree
	journal *os.File
}

// common is the directory that all paths are below.
func common(changes []*Change) string {
	base := path.Dir(changes[0].Place.Path)
	for _, c := range changes[1:] {
		for !file.Within(c.Place.Path, base) || c.Place.Path == base {
			base = path.Dir(base)
		}
	}
	// A directory that will be made is no place for the list.
	for _, c := range changes {
		for i := range c.Place.Missing {
			gone := parent(c.Place, len(c.Place.Missing)-i)
			for file.Within(base, gone) {
				base = path.Dir(base)
			}
		}
	}
	return base
}

// parent is the path of a place's n-th directory from its end.
func parent(p *tree.Place, n int) string {
	at := p.Path
	for range n {
		at = path.Dir(at)
	}
	return at
}

func begin(t *tree.Tree, changes []*Change, hook Hook) (*transaction, *file.Fault) {
	tx := &transaction{changes: changes, hook: hook, home: -1, base: common(changes)}
	fail := func(err error) *file.Fault {
		f := tree.Fault(path.Join(tx.base, Journal), err)
		f.Message = "the changes have no common directory that can be written: " + f.Message
		return f
	}
	p, fault := t.FindAny(tx.base)
	if fault != nil {
		return nil, fault
	}
	defer p.Close()
	var err error
	if tx.home, fault = p.OpenDir(); fault != nil {
		return nil, fault
	}
	if err := hook.step("journal.create"); err != nil {
		unix.Close(tx.home)
		return nil, fail(err)
	}
	fd, err := createLocked(tx.home, tx.base)
	if err != nil {
		unix.Close(tx.home)
		return nil, fail(err)
	}
	tx.journal = os.NewFile(uintptr(fd), Journal)
	var b strings.Builder
	for i, c := range changes {
		c.tmp = random()
		kind := "put"
		if c.Remove {
			kind = "take"
		}
		old := "-"
		if c.Old != nil || c.Remove {
			old = identity(&c.Stat)
		}
		fmt.Fprintf(&b, "%s %d %s %s %s\n", kind, i, strconv.Quote(tx.rel(c.Place.Path)), strconv.Quote(c.tmp), old)
		for j := range c.Place.Missing {
			fmt.Fprintf(&b, "dir %s\n", strconv.Quote(tx.rel(parent(c.Place, len(c.Place.Missing)-j))))
		}
	}
	if err := tx.note(b.String() + "listed\n"); err != nil {
		tx.abandon()
		tx.close()
		return nil, fail(err)
	}
	if err := syncDir(tx.home, hook); err != nil {
		tx.abandon()
		tx.close()
		return nil, fail(err)
	}
	return tx, nil
}

// createLocked makes the journal and locks it in one step, for those who look whether it is abandoned.
func createLocked(home int, base string) (int, error) {
	unlock, fault := lock(home, path.Join(base, Journal))
	if fault != nil {
		return -1, fault
	}
	defer unlock()
	fd, err := unix.Openat(home, Journal, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) // a file system without locks has none that is believed to be abandoned either
	return fd, nil
}

// rel is a path below the journal's directory.
func (tx *transaction) rel(p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, tx.base), "/")
}

// note appends to the journal and syncs it. Every note has its checksum, so that a torn one is none.
func (tx *transaction) note(text string) error {
	if err := tx.hook.step("journal.write"); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(tx.journal, "%ssum %08x\n", text, crc32.ChecksumIEEE([]byte(text))); err != nil {
		return err
	}
	return tx.journal.Sync()
}

func (tx *transaction) stage() *file.Fault {
	for _, c := range tx.changes {
		if c.Remove {
			continue
		}
		if err := c.makeParents(tx.hook); err != nil {
			return tree.Fault(c.Place.Path, err)
		}
		c.late = true
		if fault := c.stage(tx.hook, c.tmp); fault != nil {
			return fault
		}
	}
	// When the first of them is synced, the file system commits what it knows of the others too: so they
	// are synced last, and not one after the other as they are written.
	return tx.sync()
}

// syncers is how many files are synced at a time: their waits for the disk become one.
const syncers = 8

func (tx *transaction) sync() *file.Fault {
	var wg sync.WaitGroup
	defer wg.Wait()
	faults := make(chan *file.Fault, len(tx.changes))
	slots := make(chan struct{}, syncers)
	for _, c := range tx.changes {
		if c.Remove {
			continue
		}
		if err := tx.hook.step("sync"); err != nil {
			return tree.Fault(c.Place.Path, err)
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := c.sync(); err != nil {
				faults <- tree.Fault(c.Place.Path, err)
			}
		})
	}
	wg.Wait()
	select {
	case fault := <-faults:
		return fault
	default:
		return nil
	}
}

// sync makes what was staged durable.
func (c *Change) sync() error {
	fd, err := unix.Openat(c.Place.Dir, c.tmp, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) { // a file that is read-only for its owner
		fd, err = unix.Openat(c.Place.Dir, c.tmp, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

func (tx *transaction) commit() *file.Fault {
	var b strings.Builder
	for i, c := range tx.changes {
		fmt.Fprintf(&b, "staged %d %d\n", i, c.ino)
	}
	if err := tx.note(b.String() + "commit\n"); err != nil {
		return tree.Fault(path.Join(tx.base, Journal), err)
	}
	return nil
}

// take renames what is to go to a name of ours, and looks whether it is what was judged.
func (c *Change) take(hook Hook) *file.Fault {
	if err := hook.step("take"); err != nil {
		return tree.Fault(c.Place.Path, err)
	}
	dir, name := c.Place.Dir, c.Place.Name
	unlock, fault := lock(dir, c.Place.Path)
	if fault != nil {
		return fault
	}
	defer unlock()
	err := unix.Renameat2(dir, name, dir, c.tmp, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		err = unix.Renameat(dir, name, dir, c.tmp)
	}
	if errors.Is(err, unix.ENOENT) {
		return changed(c.Place.Path)
	}
	if err != nil {
		f := tree.Fault(c.Place.Path, err)
		if f.Code == file.CodeIOError {
			f.Code = file.CodeDeleteFailed
		}
		return f
	}
	if !c.original(dir, c.tmp) {
		c.kept = !c.putBack()
		return changed(c.Place.Path)
	}
	c.done = true
	return nil
}

// putBack gives what was taken its name again, unless somebody has put something there meanwhile: that stays, and would have replaced
// it. It reports whether nobody misses what is under the name of ours now.
func (c *Change) putBack() bool {
	err := unix.Renameat2(c.Place.Dir, c.tmp, c.Place.Dir, c.Place.Name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		err = unix.Unlinkat(c.Place.Dir, c.tmp, 0)
	}
	return err == nil
}

// abandon removes what was staged. No name is given, or none any more.
func (tx *transaction) abandon() {
	for i := len(tx.changes) - 1; i >= 0; i-- {
		c := tx.changes[i]
		if !c.Remove && c.ino != 0 && !c.kept {
			unix.Unlinkat(c.Place.Dir, c.tmp, 0)
		}
		c.unmake()
	}
	unix.Unlinkat(tx.home, Journal, 0)
}

// undo gives every name its old content back. If the journal cannot say so, a crash in the middle of it would do the whole: then
// that is still all of it. It reports whether all is as it was; otherwise journal and contents stay, and Recover goes on.
func (tx *transaction) undo() bool {
	tx.note("undo\n")
	whole := true
	for i := len(tx.changes) - 1; i >= 0; i-- {
		c := tx.changes[i]
		whole = (!c.done || c.undo(tx.hook)) && !c.stuck() && whole
	}
	if whole {
		tx.abandon()
		return true
	}
	for _, c := range tx.changes {
		c.closeMade()
	}
	return false
}

// stuck reports whether a change that was not done could not be taken back either.
func (c *Change) stuck() bool {
	ino, _ := look(c.Place.Dir, c.Place.Name)
	return c.kept && (c.Remove || ino == c.ino)
}

// undo reports whether the name has its old content again, or what somebody else has put there meanwhile.
func (c *Change) undo(hook Hook) bool {
	if hook.step("back") != nil {
		return false
	}
	unlock, fault := lock(c.Place.Dir, c.Place.Path)
	if fault != nil {
		return false
	}
	defer unlock()
	switch {
	case c.Remove:
		return c.putBack()
	case c.Old != nil:
		return c.exchangeBack()
	}
	if ino, _ := look(c.Place.Dir, c.Place.Name); ino != c.ino {
		return true
	}
	err := unix.Renameat2(c.Place.Dir, c.Place.Name, c.Place.Dir, c.tmp, unix.RENAME_NOREPLACE)
	return err == nil || errors.Is(err, unix.ENOENT)
}

// clean ends a change that has happened.
func (tx *transaction) clean() *file.Fault {
	var failed error
	synced := map[string]bool{}
	for _, c := range tx.changes {
		if dir := path.Dir(c.Place.Path); !synced[dir] {
			synced[dir] = true
			failed = errors.Join(failed, syncDir(c.Place.Dir, tx.hook))
		}
	}
	if failed != nil {
		for _, c := range tx.changes {
			c.closeMade()
		}
		return &file.Fault{Status: file.Error, Code: file.CodeIOError, Message: "changed, but a directory could not be synced: " + failed.Error()}
	}
	for _, c := range tx.changes {
		if c.Remove || c.Old != nil {
			if tx.hook.step("unlink") == nil {
				unix.Unlinkat(c.Place.Dir, c.tmp, 0)
			}
		}
		c.closeMade()
	}
	if err := tx.hook.step("journal.remove"); err == nil {
		unix.Unlinkat(tx.home, Journal, 0)
	}
	return nil
}

func (tx *transaction) close() {
	tx.journal.Close()
	unix.Close(tx.home)
}

// maxJournal bounds the journal that Recover reads.
const maxJournal = 64 << 20

// entry is one line of a journal.
type entry struct {
	take   bool
	rel    string
	tmp    string
	old    string // identity of what is replaced or taken; "-" is nothing
	staged uint64 // inode
}

// record is what a journal says.
type record struct {
	entries      []entry
	dirs         []string
	commit, undo bool
}

// Recover ends what a crash left in a directory: it does the whole of a change that was committed, and nothing of one that
// was not. A change that is under way, here or in another process, is left alone. Whoever can write the directory can forge a journal in it,
// so only one of our own user's is believed, it names only what is below its directory without a link on the way, what it
// renames are names of ours, and judge says of each path whether this caller may change it.
func Recover(dir int, judge func(rel string) bool) error {
	unlock, fault := lock(dir, Journal)
	if fault != nil {
		return fault
	}
	fd, err := unix.Openat(dir, Journal, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil { // under way
			unix.Close(fd)
			unlock()
			return nil
		}
	}
	unlock()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), Journal)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) || st.Nlink != 1 || st.Mode&0o077 != 0 || st.Size > maxJournal {
		return nil
	}
	// Between open and lock its owner may have removed it, and begun another one.
	var now unix.Stat_t
	if err := unix.Fstatat(dir, Journal, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil || now.Ino != st.Ino {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		return err
	}
	rec := parse(string(data))
	settled := true
	for _, e := range rec.entries {
		if judge(e.rel) {
			settled = e.settle(dir, rec.commit && !rec.undo) && settled
		}
	}
	if !settled { // who comes next may have more luck
		return nil
	}
	if !rec.commit || rec.undo {
		for i := len(rec.dirs) - 1; i >= 0; i-- {
			if !judge(rec.dirs[i]) {
				continue
			}
			if parent, name, err := descend(dir, rec.dirs[i]); err == nil {
				unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
				unix.Close(parent)
			}
		}
	}
	return unix.Unlinkat(dir, Journal, 0)
}

// parse reads the notes of a journal as far as they are whole.
func parse(text string) (rec record) {
	for text != "" {
		body, rest, ok := strings.Cut(text, "sum ")
		for ok && body != "" && !strings.HasSuffix(body, "\n") { // inside of a quoted name
			more, after, found := strings.Cut(rest, "sum ")
			body, rest, ok = body+"sum "+more, after, found
		}
		if !ok || len(rest) < 9 || rest[8] != '\n' || fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body))) != rest[:8] {
			return rec
		}
		text = rest[9:]
		for line := range strings.Lines(body) {
			rec.line(strings.TrimSuffix(line, "\n"))
		}
	}
	return rec
}

func (rec *record) line(line string) {
	var e entry
	var i int
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "put", "take":
		if n, err := fmt.Sscanf(rest, "%d %q %q %s", &i, &e.rel, &e.tmp, &e.old); n != 4 || err != nil || i != len(rec.entries) {
			return
		}
		e.take = kind == "take"
		rec.entries = append(rec.entries, e)
	case "dir":
		if name, err := strconv.Unquote(rest); err == nil {
			rec.dirs = append(rec.dirs, name)
		}
	case "staged":
		var ino uint64
		if n, _ := fmt.Sscanf(rest, "%d %d", &i, &ino); n == 2 && i >= 0 && i < len(rec.entries) {
			rec.entries[i].staged = ino
		}
	case "commit":
		rec.commit = true
	case "undo":
		rec.undo = true
	}
}

// settle brings one name to the end of its change, or back to the beginning, and reports whether it is there.
func (e entry) settle(home int, forward bool) bool {
	if !strings.HasPrefix(e.tmp, Prefix) || strings.Contains(e.tmp, "/") || e.tmp == Journal {
		return true
	}
	dir, name, err := descend(home, e.rel)
	if err != nil {
		return slices.ContainsFunc([]error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EINVAL}, func(gone error) bool { return errors.Is(err, gone) })
	}
	defer unix.Close(dir)
	if e.pending(dir, name, forward) {
		e.move(dir, name, forward)
		if e.pending(dir, name, forward) {
			return false
		}
	}
	unix.Unlinkat(dir, e.tmp, 0)
	syncDir(dir, nil)
	return true
}

// pending reports whether there is something to move. What lies under the two names says how far it had come.
func (e entry) pending(dir int, name string, forward bool) bool {
	atIno, at := look(dir, name)
	tmpIno, tmp := look(dir, e.tmp)
	switch {
	case forward && e.take:
		return at == e.old
	case forward:
		return e.staged != 0 && atIno != e.staged && tmpIno == e.staged && at == e.old
	case e.take:
		return at == "-" && tmp != "-" && tmp != ""
	}
	return e.staged != 0 && atIno == e.staged
}

// move makes the one rename that is pending, or its opposite.
func (e entry) move(dir int, name string, forward bool) {
	switch {
	case forward && e.take:
		unix.Unlinkat(dir, name, 0)
	case forward && e.old == "-":
		unix.Renameat2(dir, e.tmp, dir, name, unix.RENAME_NOREPLACE)
	case forward:
		unix.Renameat(dir, e.tmp, dir, name)
	case e.take:
		unix.Renameat2(dir, e.tmp, dir, name, unix.RENAME_NOREPLACE)
	case e.old != "-":
		unix.Renameat2(dir, e.tmp, dir, name, unix.RENAME_EXCHANGE)
	default:
		unix.Renameat2(dir, name, dir, e.tmp, unix.RENAME_NOREPLACE)
	}
}

// identity is what a file that nobody has written to since still has.
func identity(st *unix.Stat_t) string {
	return fmt.Sprintf("%d.%d.%d.%d", st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
}

// look says what lies under a name: "-" is nothing, "" nothing that can be ours to change.
func look(dir int, name string) (ino uint64, id string) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
		return 0, "-"
	} else if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, ""
	}
	return st.Ino, identity(&st)
}

// descend opens the directory of a path below home, without a link on the way.
func descend(home int, rel string) (dir int, name string, err error) {
	parts := strings.Split(rel, "/")
	dir, err = unix.FcntlInt(uintptr(home), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, "", err
	}
	for i, part := range parts {
		if part == "" || part == "." || part == ".." {
			unix.Close(dir)
			return -1, "", unix.EINVAL
		}
		if i == len(parts)-1 {
			break
		}
		next, err := unix.Openat(dir, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(dir)
		if err != nil {
			return -1, "", err
		}
		dir = next
	}
	return dir, parts[len(parts)-1], nil
}
