package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/folderlock"
	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// Store stores chunks in files: DIR/DESTINATION/SOURCE-FLOW-NUMBER-PLACE, each as
// [custody.Chunk.AppendTo] encodes it, so that an operator can examine, move and remove them. The
// place is missing if it is not known. One
// process uses it at a time. Its methods may be called concurrently.
type Store struct {
	dir  string
	lock *os.File

	putMu    sync.Mutex
	unsynced bool // a folder was created that may not be on the disk yet
}

// Kept describes a chunk in a store.
type Kept struct {
	custody.ID
	// Place is where the chunk came from.
	Place hostapi.Place
	// Size is the size of the chunk's file in bytes.
	Size int64
	// Since is when the chunk was stored.
	Since time.Time

	expires time.Time // when the chunk expires; zero if that is not known
}

// expired reports whether the chunk has expired in a node that keeps chunks for this long.
func (k *Kept) expired(now time.Time, keep time.Duration) bool {
	return now.After(k.deadline(keep))
}

// deadline returns when the chunk expires in a node that keeps chunks for this long.
func (k *Kept) deadline(keep time.Duration) time.Time {
	over := k.Since.Add(keep)
	if !k.expires.IsZero() && k.expires.Before(over) {
		return k.expires
	}
	return over
}

// tempPrefix is the prefix of incomplete files' names.
const tempPrefix = ".coming-"

// Open opens the store in a folder, creates the folder if necessary, and lists its chunks in no
// particular order. It removes incomplete files of an earlier process. The error wraps
// folderlock.ErrBusy.
func Open(dir string) (*Store, []Kept, error) {
	lock, err := folderlock.Take(dir, 0o700)
	if err != nil {
		return nil, nil, fmt.Errorf("chunks: %w", err)
	}
	s := &Store{dir: dir, lock: lock, unsynced: true}
	all, err := List(dir)
	if err == nil {
		err = s.removeTemporary()
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, all, nil
}

// Close releases the store to other processes.
func (s *Store) Close() error { return s.lock.Close() }

// List lists the chunks in a folder in no particular order, even while a process uses it. It
// ignores other files.
func List(dir string) (all []Kept, err error) {
	destinations, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("chunks: %w", err)
	}
	for _, d := range destinations {
		to, err := frame.ParseGUID(d.Name())
		if err != nil {
			continue
		}
		files, err := os.ReadDir(filepath.Join(dir, d.Name()))
		if errors.Is(err, fs.ErrNotExist) { // the last of its chunks was removed just now
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("chunks: %w", err)
		}
		for _, f := range files {
			id, at, ok := parseFile(to, f.Name())
			if !ok {
				continue
			}
			if info, err := f.Info(); err == nil {
				all = append(all, Kept{ID: id, Place: at, Size: info.Size(), Since: info.ModTime()})
			}
		}
	}
	return all, nil
}

func (s *Store) removeTemporary() error {
	rest, err := filepath.Glob(filepath.Join(s.dir, "*", tempPrefix+"*"))
	for _, f := range rest {
		err = errors.Join(err, os.Remove(f))
	}
	if err != nil {
		return fmt.Errorf("chunks: %w", err)
	}
	folders, err := filepath.Glob(filepath.Join(s.dir, strings.Repeat("[0-9a-f]", 2*len(frame.GUID{}))))
	for _, f := range folders {
		_ = unix.Rmdir(f) // Rmdir removes only empty ones
	}
	return err
}

func (s *Store) folder(to frame.GUID) string { return filepath.Join(s.dir, to.String()) }

func (s *Store) file(id custody.ID, at hostapi.Place) string {
	return filepath.Join(s.folder(id.Destination), fileName(id, at))
}

func fileName(id custody.ID, at hostapi.Place) string {
	name := fmt.Sprintf("%v-%016x-%016x", id.Source, id.Flow, id.Number)
	if at != 0 {
		name += fmt.Sprintf("-%016x", uint64(at))
	}
	return name
}

// parseFile parses the name of a chunk's file.
func parseFile(to frame.GUID, name string) (id custody.ID, at hostapi.Place, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) < 3 || len(parts) > 4 || strings.ToLower(name) != name {
		return id, 0, false
	}
	source, err := frame.ParseGUID(parts[0])
	flow, flowErr := strconv.ParseUint(parts[1], 16, 64)
	number, numberErr := strconv.ParseUint(parts[2], 16, 64)
	id = custody.ID{Source: source, Destination: to, Flow: flow, Number: number}
	if len(parts) == 4 {
		place, placeErr := strconv.ParseUint(parts[3], 16, 64)
		at, err = hostapi.Place(place), errors.Join(err, placeErr)
	}
	return id, at, errors.Join(err, flowErr, numberErr) == nil && fileName(id, at) == name
}

// Pending is a chunk to store.
type Pending struct {
	ID custody.ID
	// Place is where the chunk came from.
	Place hostapi.Place
	// Bytes is the encoded chunk.
	Bytes []byte

	expires time.Time
}

// Put stores chunks. If it returns nil all of them are on the disk, and otherwise none.
func (s *Store) Put(pieces []Pending) (err error) {
	s.putMu.Lock()
	defer s.putMu.Unlock()
	if err := s.put(pieces); err != nil {
		for _, p := range pieces {
			_ = s.Remove(p.ID, p.Place)
			_ = unix.Rmdir(s.folder(p.ID.Destination)) // removes it if it is empty
		}
		return fmt.Errorf("keep chunks: %w", err)
	}
	return nil
}

func (s *Store) put(pieces []Pending) (err error) {
	files, folders := make([]*os.File, 0, len(pieces)), map[string]struct{}{}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, closeAll(files))
		}
		if err != nil {
			for _, f := range files {
				_ = os.Remove(f.Name()) // some have been renamed already
			}
		}
	}()
	for _, p := range pieces {
		f, err := s.create(p.ID.Destination)
		if err != nil {
			return err
		}
		files, folders[filepath.Dir(f.Name())] = append(files, f), struct{}{}
		if _, err := f.Write(p.Bytes); err != nil {
			return err
		}
	}
	for _, f := range files { // all together, because the disk then writes its journal once for several
		if err := f.Sync(); err != nil {
			return err
		}
	}
	closed = true
	if err := closeAll(files); err != nil {
		return err
	}
	for i, p := range pieces {
		if err := os.Rename(files[i].Name(), s.file(p.ID, p.Place)); err != nil {
			return err
		}
	}
	for folder := range folders {
		if err := wholefile.SyncFolder(folder); err != nil {
			return err
		}
	}
	if s.unsynced {
		if err := wholefile.SyncFolder(s.dir); err != nil {
			return err
		}
		s.unsynced = false
	}
	return nil
}

// create creates a temporary file for a destination.
func (s *Store) create(to frame.GUID) (*os.File, error) {
	if err := os.Mkdir(s.folder(to), 0o700); err == nil {
		s.unsynced = true
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.CreateTemp(s.folder(to), tempPrefix)
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Read returns an encoded chunk that came from a place.
func (s *Store) Read(id custody.ID, at hostapi.Place) ([]byte, error) {
	b, err := os.ReadFile(s.file(id, at))
	if err != nil {
		return nil, fmt.Errorf("read a chunk: %w", err)
	}
	return b, nil
}

// Remove removes a chunk that came from a place. It returns nil if there is no such chunk.
func (s *Store) Remove(id custody.ID, at hostapi.Place) error {
	if err := os.Remove(s.file(id, at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a chunk: %w", err)
	}
	return nil
}

// RemoveEmpty removes the folder of a destination if it is empty.
func (s *Store) RemoveEmpty(to frame.GUID) {
	s.putMu.Lock()
	defer s.putMu.Unlock()
	_ = unix.Rmdir(s.folder(to))
}
