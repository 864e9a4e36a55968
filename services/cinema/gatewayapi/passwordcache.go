package gatewayapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync"
)

// maxCachedPasswords bounds the passwords in a cache.
const maxCachedPasswords = 1024

// PasswordCache remembers which passwords have matched their hashes, so that they need not be
// compared again. A comparison occupies a processor for tens of milliseconds, and only a few
// may run at the same time. The cache holds no passwords, only keyed digests that are valid in
// this process. It is safe for concurrent use. Create it with NewPasswordCache.
type PasswordCache struct {
	secret [sha256.Size]byte

	mu      sync.Mutex
	digests map[[sha256.Size]byte]bool
}

// NewPasswordCache returns an empty cache.
func NewPasswordCache() *PasswordCache {
	c := &PasswordCache{digests: map[[sha256.Size]byte]bool{}}
	_, _ = rand.Read(c.secret[:]) // never fails
	return c
}

// Contains reports whether a password is known to match a hash.
func (c *PasswordCache) Contains(hash, password string) bool {
	digest := c.digest(hash, password)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.digests[digest]
}

// Add records that a password matches a hash. If the cache is full, it is emptied first.
func (c *PasswordCache) Add(hash, password string) {
	digest := c.digest(hash, password)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.digests) >= maxCachedPasswords {
		clear(c.digests)
	}
	c.digests[digest] = true
}

func (c *PasswordCache) digest(hash, password string) (out [sha256.Size]byte) {
	m := hmac.New(sha256.New, c.secret[:])
	_, _ = fmt.Fprintf(m, "%d %s%s", len(hash), hash, password)
	m.Sum(out[:0])
	return out
}
