package file

// Op is one file operation, by its canonical name.
type Op string

// The operations.
const (
	OpRead   Op = "host.fs.read_file"
	OpWrite  Op = "host.fs.write_file"
	OpEdit   Op = "host.fs.edit_file"
	OpPatch  Op = "host.fs.apply_patch"
	OpGrep   Op = "host.fs.grep"
	OpGlob   Op = "host.fs.glob"
	OpStat   Op = "host.fs.stat"
	OpExists Op = "host.fs.exists"
	OpList   Op = "host.fs.list_dir"
	OpMkdir  Op = "host.fs.mkdir"
	OpMove   Op = "host.fs.move"
	OpRemove Op = "host.fs.remove"
)

// Class is what allowed_fs_ops names (C20).
type Class string

// The classes.
const (
	ClassRead   Class = "read"
	ClassWrite  Class = "write"
	ClassEdit   Class = "edit"
	ClassPatch  Class = "patch"
	ClassSearch Class = "search"
	ClassList   Class = "list"
	ClassStat   Class = "stat"
)

// Statuses are how an operation can go: all but error and those of every operation are its own answers. What else goes wrong on the way is an
// error, with its code.
func (o Op) Statuses() []Status {
	own := map[Op][]Status{
		OpRead:   {NotFound, IsDirectory},
		OpWrite:  {Conflict},
		OpEdit:   {NotFound, Ambiguous},
		OpPatch:  {ParseError, Reject, NotFound},
		OpGrep:   {InvalidRegex, NotFound},
		OpGlob:   {InvalidPattern, NotFound},
		OpStat:   {NotFound},
		OpExists: {},
		OpList:   {NotFound},
		OpMkdir:  {NotFound, Conflict},
		OpMove:   {NotFound, Conflict},
		OpRemove: {NotFound, Conflict},
	}
	return append([]Status{OK, Forbidden, Error}, own[o]...)
}

// Ops are the operations with their class, and whether they change anything.
var Ops = []struct {
	Op      Op
	Class   Class
	Changes bool
}{
	{OpRead, ClassRead, false},
	{OpWrite, ClassWrite, true},
	{OpEdit, ClassEdit, true},
	{OpPatch, ClassPatch, true},
	{OpGrep, ClassSearch, false},
	{OpGlob, ClassList, false},
	{OpStat, ClassStat, false},
	{OpExists, ClassStat, false},
	{OpList, ClassList, false},
	{OpMkdir, ClassWrite, true},
	{OpMove, ClassWrite, true},
	{OpRemove, ClassWrite, true},
}

// Class is the class of the operation; "" for one that there is not.
func (o Op) Class() Class {
	for _, row := range Ops {
		if row.Op == o {
			return row.Class
		}
	}
	return ""
}

// Changes reports whether the operation changes anything.
func (o Op) Changes() bool {
	for _, row := range Ops {
		if row.Op == o {
			return row.Changes
		}
	}
	return false
}
