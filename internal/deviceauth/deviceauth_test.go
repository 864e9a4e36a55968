package deviceauth

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	key = bytes.Repeat([]byte{7}, 32)
	t0  = time.UnixMilli(1_800_000_000_000)
)

const path = "/api/v1/handover/devices/car7/orders"

func TestCheck(t *testing.T) {
	good := Header(key, "car7", "GET", path, t0)
	parts := strings.Split(good, " ")
	with := func(i int, s string) string {
		p := append([]string{}, parts...)
		p[i] = s
		return strings.Join(p, " ")
	}
	for _, tt := range []struct {
		name, header, method, path string
		key                        []byte
		now                        time.Time
		want                       error
	}{
		{"good", good, "GET", path, key, t0, nil},
		{"clock a little off", good, "GET", path, key, t0.Add(-Window), nil},
		{"another key", good, "GET", path, bytes.Repeat([]byte{8}, 32), t0, ErrCode},
		{"no key", good, "GET", path, nil, t0, ErrCode},
		{"another method", good, "POST", path, key, t0, ErrCode},
		{"another path", good, "GET", path + "x", key, t0, ErrCode},
		{"another device", with(1, "car8"), "GET", path, key, t0, ErrCode},
		{"another time", with(2, "1800000000001"), "GET", path, key, t0, ErrCode},
		{"another nonce", with(3, strings.Repeat("0", 32)), "GET", path, key, t0, ErrCode},
		{"late", good, "GET", path, key, t0.Add(Window + time.Second), ErrStale},
		{"early", good, "GET", path, key, t0.Add(-Window - time.Second), ErrStale},
		{"bearer", "Bearer abc", "GET", path, key, t0, ErrForm},
		{"no time", with(2, "now"), "GET", path, key, t0, ErrForm},
		{"short code", with(4, "00"), "GET", path, key, t0, ErrForm},
		{"short nonce", with(3, "00"), "GET", path, key, t0, ErrForm},
		{"empty", "", "GET", path, key, t0, ErrForm},
	} {
		c, err := Parse(tt.header)
		if err == nil {
			err = new(Checker).Check(c, tt.key, tt.method, tt.path, tt.now)
		}
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestOnce(t *testing.T) {
	var k Checker
	c, err := Parse(Header(key, "car7", "GET", path, t0))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Check(c, key, "GET", path, t0); err != nil {
		t.Fatal(err)
	}
	if err := k.Check(c, key, "GET", path, t0.Add(time.Second)); !errors.Is(err, ErrUsed) {
		t.Errorf("used again: %v", err)
	}
}

// A device that wastes headers shuts out itself, and only for a while.
func TestManyHeadersOfOneDevice(t *testing.T) {
	var k Checker
	check := func(id string, now time.Time) error {
		c, err := Parse(Header(key, id, "GET", path, now))
		if err != nil {
			t.Fatal(err)
		}
		return k.Check(c, key, "GET", path, now)
	}
	for range maxNonces {
		if err := check("car7", t0); err != nil {
			t.Fatal(err)
		}
	}
	if err := check("car7", t0); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	if err := check("car8", t0); err != nil {
		t.Errorf("another device: %v", err)
	}
	if err := check("car7", t0.Add(Window+time.Second)); err != nil {
		t.Errorf("later: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Header(key, "car7", "GET", path, t0))
	f.Add("Sluice-Device a 1 2 3")
	f.Fuzz(func(t *testing.T, header string) {
		c, err := Parse(header)
		if err != nil {
			return
		}
		if new(Checker).Check(c, []byte{1}, "GET", path, t0) == nil && c.ID == "" {
			t.Error("a claim of nobody")
		}
	})
}
