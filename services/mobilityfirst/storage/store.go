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
)

// Store keeps chunks in files: DIR/DESTINATION/SOURCE-FLOW-NUMBER, each as [custody.Chunk.AppendTo] writes it.
// So what is in it can be looked at, moved and removed by anybody who may. One process has it at a time. Its
// methods may be called concurrently.
type Store struct {
	dir  string
	lock *os.File

	putting  sync.Mutex
	unsynced bool // a folder was made, and the disk may not have it yet
}

// Kept is a chunk in a store.
type Kept struct {
	custody.ID
	// Size is how many bytes its file has.
	Size int64
	// Since is when it came.
	Since time.Time

	until time.Time // when it does not hold any more; zero if that is not known
}

// over says whether it is not to be kept any longer, where chunks are kept for so long.
func (k *Kept) over(now time.Time, keep time.Duration) bool {
	return now.After(k.deadline(keep))
}

// deadline is when it is over, where chunks are kept for so long.
func (k *Kept) deadline(keep time.Duration) time.Time {
	over := k.Since.Add(keep)
	if !k.until.IsZero() && k.until.Before(over) {
		return k.until
	}
	return over
}

// coming begins the names of files that are not whole yet.
const coming = ".coming-"

// Open opens the store in a folder, which is made if need be, and lists what it has, in no order.
// What was not whole when the process before ended is removed. The error wraps folderlock.ErrBusy.
func Open(dir string) (*Store, []Kept, error) {
	lock, err := folderlock.Take(dir, 0o700)
	if err != nil {
		return nil, nil, fmt.Errorf("chunks: %w", err)
	}
	s := &Store{dir: dir, lock: lock, unsynced: true}
	all, err := List(dir)
	if err == nil {
		err = s.removeComing()
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, all, nil
}

// Close gives the store to others.
func (s *Store) Close() error { return s.lock.Close() }

// List lists what a folder has, in no order, also while a process has it. What is not a store's is left out.
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
		if errors.Is(err, fs.ErrNotExist) { // the last of them has just gone
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("chunks: %w", err)
		}
		for _, f := range files {
			id, is := parseFile(to, f.Name())
			if !is {
				continue
			}
			if info, err := f.Info(); err == nil {
				all = append(all, Kept{ID: id, Size: info.Size(), Since: info.ModTime()})
			}
		}
	}
	return all, nil
}

func (s *Store) removeComing() error {
	rest, err := filepath.Glob(filepath.Join(s.dir, "*", coming+"*"))
	for _, f := range rest {
		err = errors.Join(err, os.Remove(f))
	}
	if err != nil {
		return fmt.Errorf("chunks: %w", err)
	}
	folders, err := filepath.Glob(filepath.Join(s.dir, strings.Repeat("[0-9a-f]", 2*len(frame.GUID{}))))
	for _, f := range folders {
		_ = unix.Rmdir(f) // the empty ones
	}
	return err
}

func (s *Store) folder(to frame.GUID) string { return filepath.Join(s.dir, to.String()) }

func (s *Store) file(id custody.ID) string {
	return filepath.Join(s.folder(id.Destination), fileName(id))
}

func fileName(id custody.ID) string {
	return fmt.Sprintf("%v-%016x-%016x", id.Source, id.Flow, id.Number)
}

// parseFile reads the name of a chunk's file.
func parseFile(to frame.GUID, name string) (id custody.ID, is bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 3 || strings.ToLower(name) != name {
		return id, false
	}
	source, err := frame.ParseGUID(parts[0])
	flow, flowErr := strconv.ParseUint(parts[1], 16, 64)
	number, numberErr := strconv.ParseUint(parts[2], 16, 64)
	id = custody.ID{Source: source, Destination: to, Flow: flow, Number: number}
	return id, errors.Join(err, flowErr, numberErr) == nil && fileName(id) == name
}

// Piece is a chunk that is to be kept.
type Piece struct {
	ID custody.ID
	// Bytes is the whole of it.
	Bytes []byte

	until time.Time
}

// Put keeps chunks: when it returns without an error, the disk has all of them; with one, none.
func (s *Store) Put(pieces []Piece) (err error) {
	s.putting.Lock()
	defer s.putting.Unlock()
	if err := s.put(pieces); err != nil {
		for _, p := range pieces {
			_ = s.Remove(p.ID)
			_ = unix.Rmdir(s.folder(p.ID.Destination)) // if it is empty
		}
		return fmt.Errorf("keep chunks: %w", err)
	}
	return nil
}

func (s *Store) put(pieces []Piece) (err error) {
	files, folders := make([]*os.File, 0, len(pieces)), map[string]struct{}{}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, closeAll(files))
		}
		if err != nil {
			for _, f := range files {
				_ = os.Remove(f.Name()) // some have another name by now
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
	for _, f := range files { // together: a disk writes its journal once for several
		if err := f.Sync(); err != nil {
			return err
		}
	}
	closed = true
	if err := closeAll(files); err != nil {
		return err
	}
	for i, p := range pieces {
		if err := os.Rename(files[i].Name(), s.file(p.ID)); err != nil {
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

// create begins a file for a destination.
func (s *Store) create(to frame.GUID) (*os.File, error) {
	if err := os.Mkdir(s.folder(to), 0o700); err == nil {
		s.unsynced = true
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.CreateTemp(s.folder(to), coming)
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Read gives the whole of a chunk.
func (s *Store) Read(id custody.ID) ([]byte, error) {
	b, err := os.ReadFile(s.file(id))
	if err != nil {
		return nil, fmt.Errorf("read a chunk: %w", err)
	}
	return b, nil
}

// Remove forgets a chunk. One that is not there is no error.
func (s *Store) Remove(id custody.ID) error {
	if err := os.Remove(s.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a chunk: %w", err)
	}
	return nil
}

// Tidy removes the folder of a destination for which there is nothing; one that is not empty stays.
func (s *Store) Tidy(to frame.GUID) {
	s.putting.Lock()
	defer s.putting.Unlock()
	_ = unix.Rmdir(s.folder(to))
}
