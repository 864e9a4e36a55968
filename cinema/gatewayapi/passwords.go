package gatewayapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync"
)

// keptRight bounds the passwords that are remembered.
const keptRight = 1024

// RightPasswords remembers passwords that have been compared with their hashes and were right, so
// that they need no comparison again: that takes a processor for tens of milliseconds, and is
// bounded for all who ask together. No password is kept itself, but what stands for it in this
// process alone. Make it with NewRightPasswords; its methods may be called concurrently.
type RightPasswords struct {
	secret [sha256.Size]byte

	mu  sync.Mutex
	all map[[sha256.Size]byte]bool
}

// NewRightPasswords returns one that has none.
func NewRightPasswords() *RightPasswords {
	r := &RightPasswords{all: map[[sha256.Size]byte]bool{}}
	_, _ = rand.Read(r.secret[:]) // never fails
	return r
}

// Known says whether a password is known to be that of a hash.
func (r *RightPasswords) Known(hash, password string) bool {
	mark := r.mark(hash, password)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[mark]
}

// Remember has a password known as that of a hash. Where too many are, the others are forgotten.
func (r *RightPasswords) Remember(hash, password string) {
	mark := r.mark(hash, password)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= keptRight {
		clear(r.all)
	}
	r.all[mark] = true
}

func (r *RightPasswords) mark(hash, password string) (out [sha256.Size]byte) {
	m := hmac.New(sha256.New, r.secret[:])
	_, _ = fmt.Fprintf(m, "%d %s%s", len(hash), hash, password)
	m.Sum(out[:0])
	return out
}
