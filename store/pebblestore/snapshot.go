package pebblestore

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/store"
)

const (
	snapshotFolder = "snapshots"
	snapshotSuffix = ".snapshot"
	snapshotName   = "20060102T150405.000Z"
	unfinished     = ".unfinished-"
	snapshotFormat = 1
)

// Snapshot is a copy of a store's content at one time.
type Snapshot struct {
	Path string    `json:"path"`
	Time time.Time `json:"time"`
	// Bytes is the size of the file.
	Bytes int64 `json:"bytes"`
}

// snapshotHead is the first line of a snapshot. The file is compressed by gzip, whose checksum
// shows whether the file is complete. A line for each entry follows.
type snapshotHead struct {
	Format  int       `json:"format"`
	Time    time.Time `json:"time"`
	Entries int       `json:"entries"`
}

type snapshotEntry struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Snapshots returns the snapshots below a data folder, the latest first.
func Snapshots(dir string) ([]Snapshot, error) {
	folder := filepath.Join(dir, snapshotFolder)
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("pebblestore: list the snapshots: %w", err)
	}
	var all []Snapshot
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), snapshotSuffix)
		at, err := time.Parse(snapshotName, name)
		if !ok || err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // removed meanwhile
		}
		all = append(all, Snapshot{filepath.Join(folder, e.Name()), at, info.Size()})
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return cmp.Compare(b.Time.UnixNano(), a.Time.UnixNano()) })
	return all, nil
}

// writeSnapshot writes a snapshot atomically.
func writeSnapshot(dir string, at time.Time, entries []store.Entry) (err error) {
	folder := filepath.Join(dir, snapshotFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("pebblestore: make the folder of snapshots: %w", err)
	}
	f, err := os.CreateTemp(folder, unfinished)
	if err != nil {
		return fmt.Errorf("pebblestore: write a snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("pebblestore: write a snapshot: %w", err)
		}
	}()
	err = encodeSnapshot(f, at, entries)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(folder, at.UTC().Format(snapshotName)+snapshotSuffix)); err != nil {
		return err
	}
	return wholefile.SyncFolder(folder)
}

func encodeSnapshot(w io.Writer, at time.Time, entries []store.Entry) error {
	z := gzip.NewWriter(w)
	e := json.NewEncoder(z)
	err := e.Encode(snapshotHead{snapshotFormat, at.UTC(), len(entries)})
	for i := 0; i < len(entries) && err == nil; i++ {
		err = e.Encode(snapshotEntry{entries[i].Key, entries[i].Value})
	}
	return errors.Join(err, z.Close())
}

// readSnapshot reads a whole snapshot, at most limit bytes of it.
func readSnapshot(file string, limit int64) (at time.Time, entries []store.Entry, err error) {
	f, err := os.Open(file)
	if err != nil {
		return at, nil, fmt.Errorf("pebblestore: read the snapshot: %w", err)
	}
	defer f.Close()
	at, entries, err = decodeSnapshot(f, limit)
	if err != nil {
		return at, nil, fmt.Errorf("pebblestore: the snapshot %s is damaged, take another one: %w", file, err)
	}
	return at, entries, nil
}

func decodeSnapshot(r io.Reader, limit int64) (time.Time, []store.Entry, error) {
	z, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return time.Time{}, nil, err
	}
	bounded := &io.LimitedReader{R: z, N: limit}
	d := json.NewDecoder(bounded)
	var head snapshotHead
	if err := d.Decode(&head); err != nil {
		return time.Time{}, nil, err
	}
	if head.Format != snapshotFormat {
		return time.Time{}, nil, fmt.Errorf("its format is %d, this program reads %d", head.Format, snapshotFormat)
	}
	var entries []store.Entry
	for {
		var e snapshotEntry
		err := d.Decode(&e)
		switch {
		case bounded.N <= 0:
			return time.Time{}, nil, fmt.Errorf("it holds more than %d bytes", limit)
		case errors.Is(err, io.EOF) && len(entries) == head.Entries:
			return head.Time, entries, nil
		case errors.Is(err, io.EOF):
			return time.Time{}, nil, fmt.Errorf("it has %d entries of %d", len(entries), head.Entries)
		case err != nil:
			return time.Time{}, nil, err
		}
		if err := store.CheckKey(e.Key); err != nil {
			return time.Time{}, nil, err
		}
		if n := len(entries); n > 0 && e.Key <= entries[n-1].Key {
			return time.Time{}, nil, fmt.Errorf("its entries are not in order at %q", e.Key)
		}
		entries = append(entries, store.Entry{Key: e.Key, Value: e.Value})
	}
}
