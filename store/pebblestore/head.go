package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/sluice-net/sluice/internal/wholefile"
)

// head is the file beside the database that says which store there is, and which revision
// was last acknowledged. The database has been synced by then, so the head is never ahead
// of it: if it is, the database has lost something. The file is not synced itself, which a
// write would have to wait for: what it says survives the process but not always the
// machine, and an older head is no harm.
type head struct {
	file *os.File
	next int // the slot that is written next
}

// The head has two slots, written in turn, so that one is whole always.
const (
	slots     = 2
	slotAt    = 512
	slotBytes = 40
	headBytes = slots * slotAt
)

var headMagic = []byte("SLUICE-1")

func headFile(dir string) string { return filepath.Join(dir, "store.head") }

var errHead = errors.New("the head is damaged")

// mark is what a head says.
type mark struct {
	id       [16]byte
	revision uint64
}

func (m mark) encode() []byte {
	b := append(make([]byte, 0, slotBytes), headMagic...)
	b = append(b, m.id[:]...)
	b = be.AppendUint64(b, m.revision)
	return be.AppendUint64(b, xxhash.Sum64(b))
}

func decodeMark(b []byte) (m mark, ok bool) {
	if len(b) < slotBytes || !bytes.HasPrefix(b, headMagic) || be.Uint64(b[slotBytes-8:]) != xxhash.Sum64(b[:slotBytes-8]) {
		return m, false
	}
	copy(m.id[:], b[len(headMagic):])
	m.revision = be.Uint64(b[len(headMagic)+len(m.id):])
	return m, true
}

// readHead returns the latest mark of a folder's head. The error wraps fs.ErrNotExist if
// there is no head, and errHead if no slot is whole.
func readHead(dir string) (m mark, err error) {
	b, err := wholefile.Read(headFile(dir), headBytes)
	if err != nil {
		return m, err
	}
	whole := false
	for slot := range slots {
		if at := slot * slotAt; at < len(b) {
			if x, ok := decodeMark(b[at:]); ok && (!whole || x.revision > m.revision) {
				m, whole = x, true
			}
		}
	}
	if !whole {
		return m, fmt.Errorf("%s: %w", headFile(dir), errHead)
	}
	return m, nil
}

// writeHead replaces the head of a folder.
func writeHead(dir string, m mark) error {
	b := make([]byte, headBytes)
	for slot := range slots {
		copy(b[slot*slotAt:], m.encode())
	}
	return wholefile.Replace(headFile(dir), b, 0o600)
}

// openHead opens the head of a folder to be kept up to date.
func openHead(dir string) (*head, error) {
	f, err := os.OpenFile(headFile(dir), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &head{file: f}, nil
}

// write notes a revision in the next slot.
func (h *head) write(m mark) error {
	_, err := h.file.WriteAt(m.encode(), int64(h.next*slotAt))
	h.next = (h.next + 1) % slots
	return err
}

func (h *head) close() error { return errors.Join(h.file.Sync(), h.file.Close()) }

// headMissing reports whether an error of readHead says that there is no head.
func headMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
