package etcdstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Where things are below the data folder.
const (
	etcdDir     = "etcd"
	spareLog    = "log.spare"
	nextLog     = "0.tmp"
	allNextLogs = "*.tmp"
)

func etcdFolder(dir string) string   { return filepath.Join(dir, etcdDir) }
func walDir(dir string) string       { return filepath.Join(dir, etcdDir, "member", "wal") }
func snapDir(dir string) string      { return filepath.Join(dir, etcdDir, "member", "snap") }
func databaseFile(dir string) string { return filepath.Join(snapDir(dir), "db") }

// saveLog keeps the log's next file, which etcd has allocated in advance and removes when
// it stops, under a second name: it is there at the next start then, even if others have
// filled the file system.
func saveLog(dir string) {
	files, _ := filepath.Glob(filepath.Join(walDir(dir), allNextLogs)) // a pattern that is well-formed
	for _, file := range files {
		if err := os.Link(file, filepath.Join(dir, spareLog)); err == nil {
			return
		}
	}
}

// keepLog puts the next log file of an earlier process where etcd looks for it, and
// removes what else there is of that kind.
func keepLog(dir string) error {
	wal := walDir(dir)
	if _, err := os.Stat(wal); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(wal, allNextLogs)) // a pattern that is well-formed
	files = append(files, filepath.Join(dir, spareLog))
	kept := filepath.Join(dir, "log.kept")
	for _, file := range files {
		if !unused(file) {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("etcdstore: remove a log file that was never finished: %w", err)
			}
			continue
		}
		if err := os.Rename(file, kept); err != nil {
			return fmt.Errorf("etcdstore: keep the log's next file: %w", err)
		}
	}
	if err := os.Rename(kept, filepath.Join(wal, nextLog)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("etcdstore: keep the log's next file: %w", err)
	}
	return nil
}

// unused says whether a file is one that has been allocated for the log and not written
// to: etcd writes a header first.
func unused(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [8]byte
	info, err := f.Stat()
	if err != nil || info.Size() != segment {
		return false
	}
	_, err = io.ReadFull(f, head[:])
	return err == nil && head == [8]byte{}
}
