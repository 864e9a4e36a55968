package pebbledb

import (
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fileSystem is the file system of a database. The first write that fails makes the database fail.
// From then on all writes, that one included, do nothing and report success to Pebble. So a failed
// database never changes a folder that a later database uses. The folder is not locked, because a
// database whose disk hangs would keep its lock.
type fileSystem struct {
	vfs.FS
	db *DB
}

// try performs a write unless the database has failed. If the write fails, try marks the database
// as failed and returns nil. An error that a file does not exist is returned to Pebble, and is no
// failure.
func (d *DB) try(write func() error) error {
	if d.Err() != nil {
		return nil
	}
	err := write()
	if err == nil || os.IsNotExist(err) {
		return err
	}
	d.fail(err)
	return nil
}

// file calls make, and returns its file as a file of the database. If the database has failed, file
// returns a file in memory instead.
func (f *fileSystem) file(name string, make func() (vfs.File, error)) (made vfs.File, err error) {
	err = f.db.try(func() (err error) { made, err = make(); return err })
	if err == nil && f.db.Err() != nil && made == nil {
		made, err = vfs.NewMem().Create(f.PathBase(name), vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return nil, err
	}
	return &file{made, f.db}, nil
}

// Create implements vfs.FS.
func (f *fileSystem) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return f.FS.Create(name, c) })
}

// OpenReadWrite implements vfs.FS.
func (f *fileSystem) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, o...) })
}

// ReuseForWrite implements vfs.FS.
func (f *fileSystem) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return f.FS.ReuseForWrite(old, name, c) })
}

// OpenDir implements vfs.FS. Pebble opens a folder only to sync it.
func (f *fileSystem) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &file{dir, f.db}, nil
}

// Link implements vfs.FS.
func (f *fileSystem) Link(old, name string) error {
	return f.db.try(func() error { return f.FS.Link(old, name) })
}

// Remove implements vfs.FS.
func (f *fileSystem) Remove(name string) error {
	return f.db.try(func() error { return f.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (f *fileSystem) RemoveAll(name string) error {
	return f.db.try(func() error { return f.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (f *fileSystem) Rename(old, name string) error {
	return f.db.try(func() error { return f.FS.Rename(old, name) })
}

// MkdirAll implements vfs.FS.
func (f *fileSystem) MkdirAll(dir string, mode os.FileMode) error {
	return f.db.try(func() error { return f.FS.MkdirAll(dir, mode) })
}

// Lock implements vfs.FS.
func (*fileSystem) Lock(string) (io.Closer, error) { return unlocked{}, nil }

// unlocked is returned in place of a folder's lock, because folders are not locked.
type unlocked struct{}

// Close implements io.Closer.
func (unlocked) Close() error { return nil }

// file is a file of a database.
type file struct {
	vfs.File
	db *DB
}

// Write implements vfs.File.
func (f *file) Write(b []byte) (int, error) {
	err := f.db.try(func() error { _, err := f.File.Write(b); return err })
	return len(b), err
}

// WriteAt implements vfs.File.
func (f *file) WriteAt(b []byte, at int64) (int, error) {
	err := f.db.try(func() error { _, err := f.File.WriteAt(b, at); return err })
	return len(b), err
}

// Preallocate implements vfs.File. An error of it does not make the database fail, because a later
// write to the file will.
func (f *file) Preallocate(at, length int64) error {
	if f.db.Err() != nil {
		return nil
	}
	return f.File.Preallocate(at, length)
}

// Sync implements vfs.File.
func (f *file) Sync() error { return f.db.try(f.File.Sync) }

// SyncData implements vfs.File.
func (f *file) SyncData() error { return f.db.try(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *file) SyncTo(length int64) (full bool, err error) {
	full = true // the result if the database has failed
	err = f.db.try(func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}
