package content

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// PieceSize is the size of a piece in bytes; the last piece of a file may be smaller.
	PieceSize = 256 << 10
	// MaxPieces is the maximum number of pieces of a file: 32 GiB.
	MaxPieces = 1 << 17
	// magic is the beginning of a manifest.
	magic = "SMFC\x00\x01"
	// manifestHead is the size of a manifest without its hashes.
	manifestHead = len(magic) + 8
	// maxManifest is the maximum size of a manifest.
	maxManifest = manifestHead + MaxPieces*sha256.Size
)

// ErrWrong means that data do not belong to the requested content; errors wrap it.
var ErrWrong = errors.New("it is not of that content")

var be = binary.BigEndian

// Manifest lists the pieces of a file.
type Manifest struct {
	// Size is the size of the file in bytes.
	Size int64
	// Pieces contains the SHA-256 hash of each piece.
	Pieces [][sha256.Size]byte
}

// ManifestOf reads a file to its end and returns its manifest. The error wraps the reader's, or
// says that the file is too long.
func ManifestOf(r io.Reader) (*Manifest, error) {
	m := &Manifest{}
	b := make([]byte, PieceSize)
	for {
		n, err := io.ReadFull(r, b)
		if n > 0 {
			if len(m.Pieces) == MaxPieces {
				return nil, fmt.Errorf("content of more than %d bytes", int64(MaxPieces)*PieceSize)
			}
			m.Size += int64(n)
			m.Pieces = append(m.Pieces, sha256.Sum256(b[:n]))
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return m, nil
		case err != nil:
			return nil, fmt.Errorf("reading content: %w", err)
		}
	}
}

// AppendTo appends the manifest to b, as ParseManifest reads it.
func (m *Manifest) AppendTo(b []byte) []byte {
	b = be.AppendUint64(append(b, magic...), uint64(m.Size))
	for i := range m.Pieces {
		b = append(b, m.Pieces[i][:]...)
	}
	return b
}

// size returns the number of bytes that AppendTo appends.
func (m *Manifest) size() int { return manifestHead + len(m.Pieces)*sha256.Size }

// part returns a part of the encoded manifest, or nil if there is none with this number.
func (m *Manifest) part(n int) []byte {
	from, to := n*PieceSize, min((n+1)*PieceSize, m.size())
	if from >= to {
		return nil
	}
	if n == 0 {
		return (&Manifest{m.Size, m.Pieces[:(to-manifestHead+sha256.Size-1)/sha256.Size]}).AppendTo(nil)[:to]
	}
	first := (from - manifestHead) / sha256.Size
	skipped := manifestHead + first*sha256.Size
	var b []byte
	for i := first; skipped+len(b) < to; i++ {
		b = append(b, m.Pieces[i][:]...)
	}
	return b[from-skipped : to-skipped]
}

// manifestSize returns the size of the manifest that begins with these bytes.
func manifestSize(b []byte) (int, error) {
	if len(b) < manifestHead || string(b[:len(magic)]) != magic {
		return 0, fmt.Errorf("manifest that begins with %d bytes: %w", len(b), ErrWrong)
	}
	size := be.Uint64(b[len(magic):])
	if size > MaxPieces*PieceSize {
		return 0, fmt.Errorf("manifest for %d bytes of content: %w", size, ErrWrong)
	}
	return manifestHead + int((size+PieceSize-1)/PieceSize)*sha256.Size, nil
}

// ParseManifest parses a manifest that makes up all of b. The error wraps ErrWrong.
func ParseManifest(b []byte) (*Manifest, error) {
	size, err := manifestSize(b)
	if err == nil && size != len(b) {
		err = fmt.Errorf("manifest of %d bytes instead of %d: %w", len(b), size, ErrWrong)
	}
	if err != nil {
		return nil, err
	}
	m := &Manifest{Size: int64(be.Uint64(b[len(magic):])), Pieces: make([][sha256.Size]byte, (size-manifestHead)/sha256.Size)}
	b = b[manifestHead:]
	for i := range m.Pieces {
		copy(m.Pieces[i][:], b[i*sha256.Size:])
	}
	return m, nil
}

// purpose separates this hash from all others.
const purpose = "sluice: content, 1\x00"

// Key returns the key of the content's name. Everyone who has the manifest has the key, and a
// holder gives the manifest to everyone who requests it.
func (m *Manifest) Key() ed25519.PrivateKey {
	seed := sha256.Sum256(m.AppendTo([]byte(purpose)))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Name returns the content's name.
func (m *Manifest) Name() frame.GUID { return record.NameOfOwner(m.Key()) }

// Length returns the size of a piece in bytes.
func (m *Manifest) Length(piece int) int {
	return int(min(m.Size-int64(piece)*PieceSize, PieceSize))
}

// Check checks that bytes are a piece of the file. The error wraps ErrWrong.
func (m *Manifest) Check(piece int, b []byte) error {
	if piece < 0 || piece >= len(m.Pieces) || len(b) != m.Length(piece) || sha256.Sum256(b) != m.Pieces[piece] {
		return fmt.Errorf("piece %d of %d, %d bytes: %w", piece, len(m.Pieces), len(b), ErrWrong)
	}
	return nil
}
