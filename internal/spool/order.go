package spool

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"os"
	"sort"
	"time"
)

const (
	// together is the pace of a log that is not recorded. One wake-up of a reader is shorter.
	together = time.Millisecond
	// most is how many chunks a log tells apart; what follows is one growing chunk for each stream.
	most = 64 << 10
)

// order is the chunk log: in which order bytes of two pipes came. Its own file is made when
// there is something that the files of the streams do not tell: a second chunk, or bytes
// that were dropped.
type order struct {
	create  func() (*os.File, error)
	records []record
	index   [len(streams)][]int32 // the records of each stream, in order
	file    *os.File
	err     error // the file is given up: it ends before what it lacks
	ended   bool

	pace time.Duration // how long the last chunk takes further bytes of its stream; 0 means together
}

type record struct {
	at, offset, length int64
	stream             Stream
	dropped            bool
}

// last is the last record of a stream.
func (o *order) last(st Stream) (n int, r *record) {
	if of := o.index[st]; len(of) > 0 {
		n = int(of[len(of)-1])
		return n, &o.records[n]
	}
	return -1, nil
}

// arrive notes n bytes more of a stream.
func (o *order) arrive(st Stream, n, at int64) {
	i, r := o.last(st)
	switch {
	case r != nil && i >= most,
		r != nil && i == len(o.records)-1 && at >= r.at && at-r.at < int64(cmp.Or(o.pace, together)):
		r.length += n
	default:
		offset := int64(0)
		if r != nil {
			offset = r.offset + r.length
		}
		i = o.add(record{at: at, offset: offset, length: n, stream: st})
	}
	o.write(i)
}

// drop notes that of a stream all bytes from offset on were dropped, n until now.
func (o *order) drop(st Stream, offset, n, at int64) {
	i, r := o.last(st)
	if r != nil && r.dropped {
		r.length = n
	} else {
		i = o.add(record{at: at, offset: offset, length: n, stream: st, dropped: true})
	}
	o.write(i)
}

func (o *order) add(r record) int {
	i := len(o.records)
	o.records = append(o.records, r)
	o.index[r.stream] = append(o.index[r.stream], int32(i))
	return i
}

func (o *order) chunks(from int64, max int) []Chunk {
	from = min(from, int64(len(o.records))+1)
	first := int(from) - 1
	if first < 0 {
		first = 0
	}
	rs := o.records[first:]
	rs = rs[:min(len(rs), max)]
	out := make([]Chunk, len(rs))
	for i, r := range rs {
		out[i] = Chunk{Seq: int64(first + i + 1), Stream: r.stream, Offset: r.offset, Length: r.length, AtNS: r.at, Dropped: r.dropped}
	}
	return out
}

func (o *order) position(have [len(streams)]int64) int64 {
	first := len(o.records)
	for _, st := range streams {
		of := o.index[st]
		n := sort.Search(len(of), func(i int) bool {
			r := &o.records[of[i]]
			return r.dropped || r.offset+r.length > have[st]
		})
		if n < len(of) && !o.records[of[n]].dropped { // it is the last one of its stream
			first = min(first, int(of[n]))
		}
	}
	return int64(first) + 1
}

// The file; see FORMAT.md.
const (
	magic      = "STKCHNK\n"
	version    = 1
	headerSize = 32
	recordSize = 32
)

const flagDropped = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func appendHeader(b []byte) []byte {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, make([]byte, headerSize-4-len(b))...)
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

func (r *record) append(b []byte) []byte {
	from := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.at))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.length))
	flags := byte(0)
	if r.dropped {
		flags = flagDropped
	}
	b = append(b, byte(r.stream), flags, 0, 0)
	return binary.LittleEndian.AppendUint32(b, checksum(b[from:]))
}

// summed says whether b ends in the checksum of what is before.
func summed(b []byte) bool {
	end := len(b) - 4
	return checksum(b[:end]) == binary.LittleEndian.Uint32(b[end:])
}

// parse reads a record. It reports false for one that is cut, damaged, or that is never written.
func (r *record) parse(b []byte) bool {
	if len(b) < recordSize || !summed(b[:recordSize]) {
		return false
	}
	*r = record{
		at:      int64(binary.LittleEndian.Uint64(b)),
		offset:  int64(binary.LittleEndian.Uint64(b[8:])),
		length:  int64(binary.LittleEndian.Uint64(b[16:])),
		stream:  Stream(b[24]),
		dropped: b[25] == flagDropped,
	}
	return int(r.stream) < len(streams) && b[25] <= flagDropped && b[26] == 0 && b[27] == 0 &&
		r.offset >= 0 && r.length > 0 && r.offset <= 1<<62 && r.length <= 1<<62
}

// write brings record i to the file: the first time with all before it.
func (o *order) write(i int) {
	switch {
	case o.ended || o.err != nil:
	case o.file != nil:
		o.writeAt(o.records[i:i+1], i)
	case len(o.records) > 1 || o.records[i].dropped:
		if o.file, o.err = o.create(); o.err == nil {
			o.writeAt(o.records, 0)
		}
	}
}

// writeAt writes records from number i on, the header with the first. A record lies within a
// page and is written by one call: one that is rewritten is the old or the new one, whole, to a
// process that comes later.
func (o *order) writeAt(rs []record, i int) {
	var room [headerSize + 2*recordSize]byte
	b, off := room[:0], int64(headerSize+i*recordSize)
	if i == 0 {
		b, off = appendHeader(b), 0
	}
	for i := range rs {
		b = rs[i].append(b)
	}
	_, o.err = o.file.WriteAt(b, off)
}

// close gives the file up: nothing is noted any more.
func (o *order) close() {
	o.ended = true
	if o.file != nil {
		o.file.Close()
		o.file = nil
	}
}
