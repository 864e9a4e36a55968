// Package deviceauth defines how a mobile device authenticates to the controller's API: by a header
// that is signed with the device's key. The controller checks the header, and the device's daemon
// creates it.
//
//	Authorization: Sluice-Device ID TIME NONCE CODE
//
// TIME is in milliseconds since 1970. NONCE is 32 hex digits that are never used again. CODE is the
// HMAC-SHA256, in hex, of a label, the method, the path, ID, TIME and NONCE, each on a line. A
// header is valid once, within Window of its time.
package deviceauth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Scheme is the first word of the header.
const Scheme = "Sluice-Device"

// Window is the largest difference between the time of a header and the controller's time.
const Window = 30 * time.Second

const (
	label      = "sluice device api 1"
	nonceBytes = 16
	// maxNonces bounds the number of used headers that are remembered for each
	// device. A device that reaches it gets ErrBusy; other devices are not affected.
	maxNonces = 1024
)

// Reasons for which a header is refused.
var (
	ErrForm  = errors.New("want \"" + Scheme + " ID TIME NONCE CODE\"")
	ErrCode  = errors.New("the code is not the device's")
	ErrStale = errors.New("the header's time is not now: set the device's clock")
	ErrUsed  = errors.New("the header was used before")
	ErrBusy  = errors.New("too many headers of the device at once: try again later")
)

// Header returns a new value of the Authorization header.
func Header(key []byte, id, method, path string, now time.Time) string {
	var nonce [nonceBytes]byte
	_, _ = rand.Read(nonce[:]) // never fails, see package crypto/rand
	c := Claim{ID: id, time: strconv.FormatInt(now.UnixMilli(), 10), nonce: hex.EncodeToString(nonce[:])}
	return strings.Join([]string{Scheme, c.ID, c.time, c.nonce, hex.EncodeToString(c.sum(key, method, path))}, " ")
}

// Claim is a header that has been parsed but not checked.
type Claim struct {
	// ID is the device that the sender claims to be.
	ID          string
	time, nonce string
	code        []byte
	at          time.Time
}

// Parse parses the value of an Authorization header.
func Parse(header string) (Claim, error) {
	f := strings.Split(header, " ")
	if len(f) != 5 || f[0] != Scheme || f[1] == "" {
		return Claim{}, ErrForm
	}
	ms, err := strconv.ParseInt(f[2], 10, 64)
	code, err2 := hex.DecodeString(f[4])
	if err != nil || err2 != nil || len(code) != sha256.Size || len(f[3]) != 2*nonceBytes {
		return Claim{}, ErrForm
	}
	return Claim{ID: f[1], time: f[2], nonce: f[3], code: code, at: time.UnixMilli(ms)}, nil
}

func (c Claim) sum(key []byte, method, path string) []byte {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n%s\n%s\n", label, method, path, c.ID, c.time, c.nonce)
	return h.Sum(nil)
}

// Checker accepts each header only once. It remembers at most maxNonces headers of each device that
// has a key, and none of other senders.
type Checker struct {
	mu   sync.Mutex
	used map[string]map[string]time.Time // by device and nonce: until when it is remembered
}

// Check returns nil if the claim was made with the key for this request, is within Window of now,
// and has not been used before. Otherwise it returns one of the errors above.
func (k *Checker) Check(c Claim, key []byte, method, path string, now time.Time) error {
	if len(key) == 0 || !hmac.Equal(c.code, c.sum(key, method, path)) {
		return ErrCode
	}
	if off := now.Sub(c.at); off > Window || off < -Window {
		return fmt.Errorf("%w: it is off by %v", ErrStale, off.Round(time.Second))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	used := k.used[c.ID]
	if _, again := used[c.nonce]; again {
		return ErrUsed
	}
	if len(used) >= maxNonces {
		maps.DeleteFunc(used, func(_ string, until time.Time) bool { return now.After(until) })
	}
	if len(used) >= maxNonces {
		return ErrBusy
	}
	if used == nil {
		if k.used == nil {
			k.used = map[string]map[string]time.Time{}
		}
		used = map[string]time.Time{}
		k.used[c.ID] = used
	}
	used[c.nonce] = c.at.Add(Window)
	return nil
}
