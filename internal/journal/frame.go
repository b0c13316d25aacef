package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// The bytes are drawn in FORMAT.md.
const (
	segmentMagic   = "STKJRNL\n"
	segmentVersion = 1
	segmentHeader  = 80
	frameMagic     = "rec\n"
	frameHeader    = 64
	frameAlign     = 8

	// MaxRecord bounds a record, and with it what a damaged length can make a reader
	// allocate.
	MaxRecord = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type digest = [sha256.Size]byte

// opening is the header of a segment.
type opening struct {
	id    [16]byte // random; the checksums of the segment's frames begin with it
	first int64    // sequence number of the first record
	chain digest   // chain value before it
}

func (o *opening) encode() []byte {
	b := make([]byte, segmentHeader)
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint32(b[8:], segmentVersion)
	copy(b[16:], o.id[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(o.first))
	copy(b[40:], o.chain[:])
	binary.LittleEndian.PutUint32(b[76:], crc32.Checksum(b[:76], castagnoli))
	return b
}

// decodeOpening reads a segment header. Magic, version and checksum keep their places in
// every later version, so that a damaged one is told from a newer one.
func decodeOpening(b []byte) (opening, error) {
	var o opening
	switch {
	case len(b) < segmentHeader:
		return o, flaw("segment header is cut short")
	case string(b[:8]) != segmentMagic:
		return o, flaw("not a journal segment")
	case crc32.Checksum(b[:76], castagnoli) != binary.LittleEndian.Uint32(b[76:]):
		return o, flaw("segment header does not match its checksum")
	case binary.LittleEndian.Uint32(b[8:]) != segmentVersion:
		return o, ErrVersion
	}
	copy(o.id[:], b[16:32])
	o.first = int64(binary.LittleEndian.Uint64(b[32:]))
	copy(o.chain[:], b[40:72])
	return o, nil
}

// seed begins the checksums of the segment's frames. A record cannot contain bytes that
// look like a frame to someone who searches: its author does not know the id.
func (o *opening) seed() uint32 { return crc32.Update(0, castagnoli, o.id[:]) }

// frame is the header of a record.
type frame struct {
	size  uint32 // of the record
	seq   int64
	back  uint32 // seq - back was the first record of the same write: all before it was durable
	left  uint32 // records of the same Append that follow this one
	chain digest // over this record and all before
	sum   uint32 // CRC-32C of the record and its padding
}

func (h *frame) base() int64 { return h.seq - int64(h.back) }

// framed is how much space a record of n bytes takes.
func framed(n int) int64 {
	return (frameHeader + int64(n) + frameAlign - 1) &^ (frameAlign - 1)
}

// padding is at most what follows a record.
var padding [frameAlign]byte

func padded(n int) []byte { return padding[:framed(n)-frameHeader-int64(n)] }

// append adds the frame of rec to b.
func (h *frame) append(b []byte, seed uint32, rec []byte) []byte {
	var head [frameHeader]byte
	copy(head[:], frameMagic)
	binary.LittleEndian.PutUint32(head[4:], h.size)
	binary.LittleEndian.PutUint64(head[8:], uint64(h.seq))
	binary.LittleEndian.PutUint32(head[16:], h.back)
	binary.LittleEndian.PutUint32(head[20:], h.left)
	copy(head[24:], h.chain[:])
	binary.LittleEndian.PutUint32(head[56:], h.sum)
	binary.LittleEndian.PutUint32(head[60:], crc32.Update(seed, castagnoli, head[:60]))
	b = append(b, head[:]...)
	b = append(b, rec...)
	return append(b, padded(len(rec))...)
}

// decodeFrame reads a header. Only one with a good checksum is believed at all.
func decodeFrame(b []byte, seed uint32) (frame, bool) {
	if string(b[:4]) != frameMagic || crc32.Update(seed, castagnoli, b[:60]) != binary.LittleEndian.Uint32(b[60:]) {
		return frame{}, false
	}
	h := frame{
		size: binary.LittleEndian.Uint32(b[4:]),
		seq:  int64(binary.LittleEndian.Uint64(b[8:])),
		back: binary.LittleEndian.Uint32(b[16:]),
		left: binary.LittleEndian.Uint32(b[20:]),
		sum:  binary.LittleEndian.Uint32(b[56:]),
	}
	copy(h.chain[:], b[24:])
	return h, h.size > 0 && h.size <= MaxRecord && h.seq >= 0 && int64(h.back) <= h.seq
}

// recordSum is the checksum that protects a record and the padding behind it.
func recordSum(rec []byte) uint32 {
	return crc32.Update(crc32.Checksum(rec, castagnoli), castagnoli, padded(len(rec)))
}

// link is the chain value after a record: it commits to the record, its place and all
// records before.
func link(before digest, leaf tlog.Hash) digest {
	var b [2 * sha256.Size]byte
	copy(b[:], before[:])
	copy(b[sha256.Size:], leaf[:])
	return sha256.Sum256(b[:])
}

// flaw is what is wrong with a piece of the journal, in words.
type flaw string

func (f flaw) Error() string { return string(f) }

// Flaws that a crash in the middle of a write can leave.
const (
	flawHeader = flaw("header does not match its checksum")
	flawRecord = flaw("record does not match its checksum")
	flawShort  = flaw("record is cut short")
	flawHole   = flaw("nothing here, but something behind")
)

// tearable reports whether a crash in the middle of a write can have left f. Frames with
// good checksums in a wrong place cannot.
func (f flaw) tearable() bool {
	return f == flawHeader || f == flawRecord || f == flawShort || f == flawHole
}

// readFrame reads the frame that is due. The error is [io.EOF] where nothing is written,
// a flaw, or what the disk said. room is how much of the file is left; buf is used for
// the record if it is large enough.
func readFrame(r io.Reader, room int64, seed uint32, buf []byte) (frame, []byte, error) {
	var head [frameHeader]byte
	n, err := io.ReadFull(r, head[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return frame{}, nil, err
	}
	if head == [frameHeader]byte{} {
		return frame{}, nil, io.EOF
	}
	if n < frameHeader {
		return frame{}, nil, flawShort
	}
	h, ok := decodeFrame(head[:], seed)
	if !ok {
		return frame{}, nil, flawHeader
	}
	size := framed(int(h.size))
	if size > room {
		return frame{}, nil, flawShort
	}
	body := slices.Grow(buf[:0], int(size-frameHeader))[:size-frameHeader]
	if _, err := io.ReadFull(r, body); err == io.EOF || err == io.ErrUnexpectedEOF {
		return frame{}, nil, flawShort // a live segment was sealed while we read
	} else if err != nil {
		return frame{}, nil, err
	}
	if crc32.Checksum(body, castagnoli) != h.sum {
		return frame{}, nil, flawRecord
	}
	return h, body[:h.size], nil
}
