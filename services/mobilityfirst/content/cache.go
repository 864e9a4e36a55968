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
	// DefaultCacheSize is the size of a cache on disk, in bytes, where Options say nothing.
	DefaultCacheSize = 10 << 30
	// LeastCacheSize is the smallest size that a cache may have, in bytes.
	LeastCacheSize = 64 << 20
	// leastCharge is what a piece counts at least: so much its file and what is known of it cost.
	leastCharge = 8 << 10
	// evicted is how many entries make room where the disk has none.
	evicted = 32
	// coming ends the names of files that are not whole yet.
	coming = ".coming"
	// touchEvery is how often it is noted on disk that a piece was asked for: that is for the next start.
	touchEvery = time.Hour
)

// entry is a piece that a cache has, or a manifest.
type entry struct {
	content frame.GUID
	piece   uint32
}

// cached is an entry in a list, those that were asked for last first.
type cached struct {
	entry
	size    int64 // what it counts
	touched time.Time
}

// CacheOptions are what a Cache works with.
type CacheOptions struct {
	// Dir is where it has its files, DIR/CONTENT/PIECE. It is made if need be, and one process has it at a time.
	Dir string
	// Size is how many bytes they have in all. A small one counts 8 KiB. Zero for DefaultCacheSize.
	Size int64
	// Log is where it says what fails; nil for nowhere.
	Log *slog.Logger
}

// Cache has pieces on disk, those that were asked for last. What is not what it was is got anew. Its methods may be called
// concurrently.
type Cache struct {
	CacheOptions
	lock    *os.File
	trouble lograte.Limit
	fetching

	mu       sync.Mutex
	recent   *list.List // of *cached
	of       map[entry]*list.Element
	contents map[frame.GUID]int // how many of these each content has
	counters CacheCounters
}

// CacheCounters are what a cache has done since it was opened, and what it has.
type CacheCounters struct {
	// Hits are pieces and manifests that were there when they were asked for, Misses those that had to be got, Failed
	// those of them for which that failed, and Unkept those that the disk did not take, or give back as they were.
	Hits, Misses, Failed, Unkept uint64
	// Pieces are how many it has now, of Contents, and Bytes what they count of its size.
	Pieces, Contents int
	Bytes            int64
}

// OpenCache opens a cache. The error wraps folderlock.ErrBusy if another process has its folder.
func OpenCache(o CacheOptions) (*Cache, error) {
	if o.Size == 0 {
		o.Size = DefaultCacheSize
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Size < LeastCacheSize {
		return nil, fmt.Errorf("cache of %d bytes: want at least %d", o.Size, LeastCacheSize)
	}
	lock, err := folderlock.Take(o.Dir, 0o700)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	c := &Cache{CacheOptions: o, lock: lock, fetching: newFetching(), recent: list.New(), of: map[entry]*list.Element{}, contents: map[frame.GUID]int{}}
	if err := c.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return c, nil
}

// Close ends what is being got, and gives the folder to others.
func (c *Cache) Close() error {
	c.work.Stop()
	return c.lock.Close()
}

// load finds what is on disk. What is not a cache's is left alone.
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
		if strings.HasSuffix(d.Name(), coming) {
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

// add notes an entry that is on disk, and removes from there what is too much.
func (c *Cache) add(e entry, bytes int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(e)
	x := &cached{e, max(bytes, leastCharge), now}
	c.of[e] = c.recent.PushFront(x)
	c.contents[e.content]++
	c.counters.Bytes += x.size
	for c.counters.Bytes > c.Size {
		c.remove(c.recent.Back().Value.(*cached).entry)
	}
}

// drop forgets an entry. c.mu is held.
func (c *Cache) drop(e entry) {
	if at := c.of[e]; at != nil {
		c.counters.Bytes -= c.recent.Remove(at).(*cached).size
		delete(c.of, e)
		if c.contents[e.content]--; c.contents[e.content] == 0 {
			delete(c.contents, e.content)
		}
	}
}

// remove forgets an entry, and removes it from the disk. c.mu is held.
func (c *Cache) remove(e entry) {
	c.drop(e)
	_ = os.Remove(c.file(e)) // or it is found at the next start
	_ = os.Remove(filepath.Dir(c.file(e)))
}

// evict makes room on a disk that has none, and says whether there was anything to remove.
func (c *Cache) evict() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ; n < evicted && c.recent.Len() > 0; n++ {
		c.remove(c.recent.Back().Value.(*cached).entry)
	}
	return n > 0
}

// has says whether an entry is on disk, and that it was asked for.
func (c *Cache) has(e entry) bool {
	now := time.Now()
	c.mu.Lock()
	at := c.of[e]
	touch := false
	if at != nil {
		c.recent.MoveToFront(at)
		x := at.Value.(*cached)
		if touch = now.Sub(x.touched) > touchEvery; touch {
			x.touched = now
		}
	}
	c.mu.Unlock()
	if touch {
		_ = os.Chtimes(c.file(e), now, now) // or the order at the next start is another
	}
	return at != nil
}

// read gives what is on disk of an entry, if that is it. If not it is forgotten.
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
	if c.of[e] != nil { // or it has just made room
		c.remove(e)
		c.unkept(e, err)
	}
	return nil, fmt.Errorf("cache: %w", err)
}

// write puts an entry on disk, in place of others if there is no room.
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
	c.unkept(e, err)
}

// create writes an entry's file. One that is not whole after a crash is found out when it is read.
func (c *Cache) create(e entry, b []byte) error {
	whole := c.file(e)
	part := filepath.Join(c.Dir, fmt.Sprintf("%v-%d%s", e.content, e.piece, coming))
	err := os.WriteFile(part, b, 0o600)
	if err == nil {
		c.mu.Lock() // lest the folder is removed meanwhile
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

// unkept counts what the disk has not kept. c.mu is held.
func (c *Cache) unkept(e entry, why error) {
	c.counters.Unkept++
	c.trouble.Warn(c.Log, "a piece is not kept", "content", e.content, "piece", e.piece, "error", why)
}

// Counters is what it has done until now.
func (c *Cache) Counters() CacheCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counters
	n.Pieces, n.Contents = len(c.of), len(c.contents)
	return n
}

func (c *Cache) count(n *uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}
