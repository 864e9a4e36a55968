package gnrs

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

// Anybody can send a datagram with another's source address. So a server sends each client a
// cookie, and what a client can use up for others (new names, notifications, the share of a domain)
// is only for requests with a valid cookie, whose senders receive datagrams at their address. The
// mechanism is that of DNS cookies (RFC 7873). Lookups and writes of existing names need none.

// optionCookie carries a cookie. In a request it contains the last cookie that the client has
// received from this server, or zeros if there is none. An answer contains one if the client's
// cookie is not the current one. The value in a request is as long as that in an answer, so that
// the answer is not longer because of it.
const optionCookie gnrswire.OptionKind = 23

const (
	cookieSize = 16
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
// one that is returned.
type cookies struct{ secret [32]byte }

func newCookies() *cookies {
	c := &cookies{}
	_, _ = rand.Read(c.secret[:]) // it never fails
	return c
}

// cookie returns the cookie of an address at a time.
func (c *cookies) cookie(a netip.Addr, now time.Time) []byte {
	mac := hmac.New(sha256.New, c.secret[:])
	at := a.As16() // IPv4 addresses are the same in both forms
	mac.Write(at[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(now.UnixNano()/int64(cookieLifetime))))
	return mac.Sum(nil)[:cookieSize]
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
