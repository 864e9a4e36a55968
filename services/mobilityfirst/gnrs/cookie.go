package gnrs

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

// Anybody can send a datagram with another's source address. So a server sends each client a
// cookie, as DNS servers do (RFC 7873). A request with a valid cookie proves that its sender receives
// datagrams at its source address. Requests that use up a limited resource need a cookie: writes of
// new names, notifications, and the share of another domain. Lookups and writes of existing names
// need none.

// optionCookie carries a cookie. In a request it contains the last cookie that the client has
// received from this server, or zeros if there is none. An answer contains one if the client's
// cookie is not the current one. The value in a request is as long as that in an answer, so that
// the answer is not longer because of it.
const optionCookie gnrswire.OptionKind = 23

const (
	cookieSize = aes.BlockSize
	// cookieLifetime is the minimum validity of a cookie; it is valid for up to twice as long. Hosts
	// publish their names every five minutes, so they always have a valid one.
	cookieLifetime = 10 * time.Minute
)

// CookieOption returns the option for a request that contains a cookie, or asks for one if cookie
// is nil.
func CookieOption(cookie []byte) gnrswire.Option {
	if cookie == nil {
		cookie = make([]byte, cookieSize)
	}
	return gnrswire.Option{Kind: optionCookie, Value: cookie}
}

// CookieOf returns the cookie in a message, or nil if there is none.
func CookieOf(m *gnrswire.Message) []byte {
	for _, o := range m.Options {
		if o.Kind == optionCookie && len(o.Value) == cookieSize {
			return o.Value
		}
	}
	return nil
}

// cookies computes the cookies of a server. It stores none: it computes a cookie again to check the
// one that is returned. Its methods may be called concurrently.
type cookies struct {
	secret [32]byte

	mu   sync.Mutex
	keys [2]slotKey // of the current and the previous slot, by the slot's lowest bit
}

// slotKey holds the key with which cookies are made during one slot. Slots are consecutive periods of
// cookieLifetime.
type slotKey struct {
	slot  int64
	block cipher.Block
}

func newCookies() *cookies {
	c := &cookies{}
	_, _ = rand.Read(c.secret[:]) // it never fails
	return c
}

// cookie returns the cookie of an address at a time: the address encrypted by AES with the key of the
// slot. An address is exactly one block. Unlike an HMAC, this takes much less time than a lookup.
func (c *cookies) cookie(a netip.Addr, now time.Time) []byte {
	at := a.As16() // IPv4 addresses are the same in both forms
	out := make([]byte, cookieSize)
	c.block(now.UnixNano()/int64(cookieLifetime)).Encrypt(out, at[:])
	return out
}

// block returns the cipher with the key of a slot.
func (c *cookies) block(slot int64) cipher.Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.keys[slot&1]
	if k.block == nil || k.slot != slot {
		mac := hmac.New(sha256.New, c.secret[:])
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(slot)))
		block, err := aes.NewCipher(mac.Sum(nil))
		if err != nil {
			panic(err) // the key has a length that AES accepts
		}
		*k = slotKey{slot, block}
	}
	return k.block
}

// check reports whether a request contains a valid cookie of its source address, and returns the
// cookie for the answer, or nil if the answer needs none.
func (c *cookies) check(m *gnrswire.Message, a netip.Addr, now time.Time) (proven bool, next []byte) {
	got := CookieOf(m)
	if got == nil {
		return false, nil
	}
	current := c.cookie(a, now)
	if hmac.Equal(got, current) {
		return true, nil
	}
	return hmac.Equal(got, c.cookie(a, now.Add(-cookieLifetime))), current
}
