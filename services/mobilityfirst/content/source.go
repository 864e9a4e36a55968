package content

import (
	"context"
	"fmt"
	"io"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Source contains the contents that a Peer serves. Its methods may be called concurrently.
type Source interface {
	// Prepare makes a piece of a content, or a part of its manifest, available, and returns its
	// size in bytes. It may wait until ctx ends. It returns an error if the source does not have
	// it.
	Prepare(ctx context.Context, content frame.GUID, piece uint32) (size int, err error)
	// Read returns a prepared piece or part.
	Read(content frame.GUID, piece uint32) ([]byte, error)
}

// File is a Source with one content: a file, which may have been removed or changed.
type File struct {
	m    *Manifest
	name frame.GUID
	file io.ReaderAt
}

// NewFile returns the source of a file with a manifest.
func NewFile(m *Manifest, file io.ReaderAt) *File { return &File{m, m.Name(), file} }

// Prepare implements Source.
func (f *File) Prepare(_ context.Context, content frame.GUID, piece uint32) (size int, err error) {
	if content != f.name {
		return 0, fmt.Errorf("content %v: %w", content, ErrAbsent)
	}
	return f.m.length(piece)
}

// length returns the size of a piece, or of a part of the manifest.
func (m *Manifest) length(piece uint32) (int, error) {
	size := int64(-1)
	switch {
	case piece >= Part:
		size = min(int64(m.size())-int64(piece-Part)*PieceSize, PieceSize)
	case piece < uint32(len(m.Pieces)):
		size = int64(m.Length(int(piece)))
	}
	if size < 0 {
		return 0, fmt.Errorf("piece %d of %d: %w", piece, len(m.Pieces), ErrAbsent)
	}
	return int(size), nil
}

// Read implements Source.
func (f *File) Read(content frame.GUID, piece uint32) ([]byte, error) {
	size, err := f.Prepare(context.Background(), content, piece)
	if err != nil {
		return nil, err
	}
	if piece >= Part {
		return f.m.part(int(piece - Part)), nil
	}
	b := make([]byte, size)
	if _, err := f.file.ReadAt(b, int64(piece)*PieceSize); err != nil {
		return nil, fmt.Errorf("piece %d: %w", piece, err)
	}
	return b, f.m.Check(int(piece), b)
}
