package content

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/folderlock"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// DefaultCacheSize is the default of CacheOptions.Size in bytes.
	DefaultCacheSize = 10 << 30
	// MinCacheSize is the minimum size of a cache in bytes.
	MinCacheSize = 64 << 20
	// minCharge is the least number of bytes that a piece counts as, because its file and its entry
	// take room, too.
	minCharge = 8 << 10
	// evictBatch is the number of entries that are evicted when the disk is full.
	evictBatch = 32
	// tempSuffix is the suffix of incomplete files' names.
	tempSuffix = ".coming"
	// touchInterval is the minimum time between two updates of a file's modification time, which
	// orders the entries at the next start.
	touchInterval = time.Hour
)

// entry identifies a piece or a manifest in a cache.
type entry struct {
	content frame.GUID
	piece   uint32
}

// cacheEntry is an element of the list of entries, which is ordered by the last request.
type cacheEntry struct {
	entry
	size    int64 // what it counts of the cache's size
	touched time.Time
}

// CacheOptions configures a Cache.
type CacheOptions struct {
	// Dir is the folder of its files, DIR/CONTENT/PIECE. OpenCache creates it; one process uses it
	// at a time.
	Dir string
	// Size limits the bytes of all files. A small file counts as 8 KiB. Zero selects
	// DefaultCacheSize.
	Size int64
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Cache keeps the most recently requested pieces on disk. It fetches a damaged piece again. Its
// methods may be called concurrently.
type Cache struct {
	CacheOptions
	lock      *os.File
	warnLimit lograte.Limit
	fetches

	mu       sync.Mutex
	recent   *list.List // of *cacheEntry
	byEntry  map[entry]*list.Element
	contents map[frame.GUID]int // the number of entries of each content
	counters CacheCounters
}

// CacheCounters counts what a cache has done since it was opened, and describes what it holds.
type CacheCounters struct {
	// Hits counts requests for pieces and manifests in the cache, and Misses requests for others.
	// Failed counts the misses for which the piece could not be fetched, and Unkept the pieces that
	// could not be written to the disk or were damaged there.
	Hits, Misses, Failed, Unkept uint64
	// Pieces is the number of pieces now, Contents the number of contents that they belong to, and
	// Bytes the part of the cache's size that they count as.
	Pieces, Contents int
	Bytes            int64
}

// OpenCache opens a cache. The error wraps folderlock.ErrBusy if another process uses its folder.
func OpenCache(o CacheOptions) (*Cache, error) {
	if o.Size == 0 {
		o.Size = DefaultCacheSize
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Size < MinCacheSize {
		return nil, fmt.Errorf("cache of %d bytes: want at least %d", o.Size, MinCacheSize)
	}
	lock, err := folderlock.Take(o.Dir, 0o700)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	c := &Cache{CacheOptions: o, lock: lock, fetches: newFetches(), recent: list.New(), byEntry: map[entry]*list.Element{}, contents: map[frame.GUID]int{}}
	if err := c.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return c, nil
}

// Close ends pending fetches and releases the folder.
func (c *Cache) Close() error {
	c.work.Stop()
	return c.lock.Close()
}

// load lists the files on disk. It ignores other files.
func (c *Cache) load() error {
	type file struct {
		entry
		fs.FileInfo
	}
	var all []file
	folders, err := os.ReadDir(c.Dir)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	for _, d := range folders {
		if strings.HasSuffix(d.Name(), tempSuffix) {
			_ = os.Remove(filepath.Join(c.Dir, d.Name()))
		}
		content, err := frame.ParseGUID(d.Name())
		if err != nil || content.String() != d.Name() || !d.IsDir() {
			continue
		}
		files, err := os.ReadDir(filepath.Join(c.Dir, d.Name()))
		if err != nil {
			return fmt.Errorf("cache: %w", err)
		}
		for _, f := range files {
			piece, err := strconv.ParseUint(f.Name(), 10, 32)
			info, gone := f.Info()
			if err == nil && gone == nil && info.Mode().IsRegular() && strconv.FormatUint(piece, 10) == f.Name() {
				all = append(all, file{entry{content, uint32(piece)}, info})
			}
		}
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.piece, b.piece)) })
	for _, f := range all {
		c.add(f.entry, f.Size(), f.ModTime())
	}
	return nil
}

func (c *Cache) file(e entry) string {
	return filepath.Join(c.Dir, e.content.String(), strconv.FormatUint(uint64(e.piece), 10))
}

// add adds an entry that is on disk, and removes old entries beyond the size.
func (c *Cache) add(e entry, bytes int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(e)
	x := &cacheEntry{e, max(bytes, minCharge), now}
	c.byEntry[e] = c.recent.PushFront(x)
	c.contents[e.content]++
	c.counters.Bytes += x.size
	for c.counters.Bytes > c.Size {
		c.remove(c.recent.Back().Value.(*cacheEntry).entry)
	}
}

// drop removes an entry from the index. c.mu is held.
func (c *Cache) drop(e entry) {
	if at := c.byEntry[e]; at != nil {
		c.counters.Bytes -= c.recent.Remove(at).(*cacheEntry).size
		delete(c.byEntry, e)
		if c.contents[e.content]--; c.contents[e.content] == 0 {
			delete(c.contents, e.content)
		}
	}
}

// remove removes an entry from the index and the disk. c.mu is held.
func (c *Cache) remove(e entry) {
	c.drop(e)
	_ = os.Remove(c.file(e)) // if this fails, the file is found at the next start
	_ = os.Remove(filepath.Dir(c.file(e)))
}

// evict makes room on a full disk, and reports whether there was anything to remove.
func (c *Cache) evict() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ; n < evictBatch && c.recent.Len() > 0; n++ {
		c.remove(c.recent.Back().Value.(*cacheEntry).entry)
	}
	return n > 0
}

// lookUp reports whether an entry is in the cache, and records the request.
func (c *Cache) lookUp(e entry) bool {
	now := time.Now()
	c.mu.Lock()
	at := c.byEntry[e]
	touch := false
	if at != nil {
		c.recent.MoveToFront(at)
		x := at.Value.(*cacheEntry)
		if touch = now.Sub(x.touched) > touchInterval; touch {
			x.touched = now
		}
	}
	c.mu.Unlock()
	if touch {
		_ = os.Chtimes(c.file(e), now, now) // if this fails, the order at the next start differs
	}
	return at != nil
}

// read returns the data of an entry if they pass the check. Otherwise it removes the entry.
func (c *Cache) read(e entry, check func([]byte) error) ([]byte, error) {
	b, err := os.ReadFile(c.file(e))
	if err == nil {
		err = check(b)
	}
	if err == nil {
		return b, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byEntry[e] != nil { // otherwise it has been evicted just now
		c.remove(e)
		c.countUnkept(e, err)
	}
	return nil, fmt.Errorf("cache: %w", err)
}

// write writes an entry to the disk, and evicts others if there is no room.
func (c *Cache) write(e entry, b []byte) {
	err := c.create(e, b)
	if err != nil && c.evict() {
		err = c.create(e, b)
	}
	if err == nil {
		c.add(e, int64(len(b)), time.Now())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(e)
	c.countUnkept(e, err)
}

// create writes an entry's file. A file that a crash has damaged is detected when it is read.
func (c *Cache) create(e entry, b []byte) error {
	whole := c.file(e)
	part := filepath.Join(c.Dir, fmt.Sprintf("%v-%d%s", e.content, e.piece, tempSuffix))
	err := os.WriteFile(part, b, 0o600)
	if err == nil {
		c.mu.Lock() // so that the folder is not removed meanwhile
		if err = os.MkdirAll(filepath.Dir(whole), 0o700); err == nil {
			err = os.Rename(part, whole)
		}
		c.mu.Unlock()
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// countUnkept counts an entry that the disk has not kept. c.mu is held.
func (c *Cache) countUnkept(e entry, why error) {
	c.counters.Unkept++
	c.warnLimit.Warn(c.Log, "a piece is not kept", "content", e.content, "piece", e.piece, "error", why)
}

// Counters returns the current counters.
func (c *Cache) Counters() CacheCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counters
	n.Pieces, n.Contents = len(c.byEntry), len(c.contents)
	return n
}

func (c *Cache) count(n *uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}
