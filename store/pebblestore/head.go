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

// head is the file beside the database that names the store and the revision that was last
// acknowledged. A revision is written to the head after the database was synced, so a head that
// is ahead of the database means that the database has lost something. The head itself is not
// synced, because every write would have to wait for that. It survives the end of the process,
// but not always a crash of the machine, and an older head does no harm.
type head struct {
	file *os.File
	next int // the slot that is written next
}

// The head has two slots, written in turn, so that one is always valid.
const (
	slots     = 2
	slotAt    = 512
	slotBytes = 40
	headBytes = slots * slotAt
)

var headMagic = []byte("SLUICE-1")

func headFile(dir string) string { return filepath.Join(dir, "store.head") }

var errHead = errors.New("the head is damaged")

// headState is the content of a head.
type headState struct {
	id       [16]byte
	revision uint64
}

func (m headState) encode() []byte {
	b := append(make([]byte, 0, slotBytes), headMagic...)
	b = append(b, m.id[:]...)
	b = be.AppendUint64(b, m.revision)
	return be.AppendUint64(b, xxhash.Sum64(b))
}

func decodeHeadState(b []byte) (m headState, ok bool) {
	if len(b) < slotBytes || !bytes.HasPrefix(b, headMagic) || be.Uint64(b[slotBytes-8:]) != xxhash.Sum64(b[:slotBytes-8]) {
		return m, false
	}
	copy(m.id[:], b[len(headMagic):])
	m.revision = be.Uint64(b[len(headMagic)+len(m.id):])
	return m, true
}

// readHead returns the latest state in a folder's head. The error wraps fs.ErrNotExist if there
// is no head, and errHead if no slot is valid.
func readHead(dir string) (m headState, err error) {
	b, err := wholefile.Read(headFile(dir), headBytes)
	if err != nil {
		return m, err
	}
	whole := false
	for slot := range slots {
		if at := slot * slotAt; at < len(b) {
			if x, ok := decodeHeadState(b[at:]); ok && (!whole || x.revision > m.revision) {
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
func writeHead(dir string, m headState) error {
	b := make([]byte, headBytes)
	for slot := range slots {
		copy(b[slot*slotAt:], m.encode())
	}
	return wholefile.Replace(headFile(dir), b, 0o600)
}

// openHead opens the head of a folder for updates.
func openHead(dir string) (*head, error) {
	f, err := os.OpenFile(headFile(dir), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &head{file: f}, nil
}

// write writes a state to the next slot.
func (h *head) write(m headState) error {
	_, err := h.file.WriteAt(m.encode(), int64(h.next*slotAt))
	h.next = (h.next + 1) % slots
	return err
}

func (h *head) close() error { return errors.Join(h.file.Sync(), h.file.Close()) }

// isHeadMissing reports whether an error of readHead means that there is no head.
func isHeadMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
