package gatewayapi

import (
	"fmt"
	"testing"
)

// TestPasswordCache checks that a right password is known for its own hash only, and that the
// cache is bounded.
func TestPasswordCache(t *testing.T) {
	c := NewPasswordCache()
	c.Add("hash", "right")
	for _, x := range []struct {
		hash, password string
		known          bool
	}{{"hash", "right", true}, {"hash", "wrong", false}, {"other", "right", false}, {"hashr", "ight", false}, {"", "hashright", false}} {
		if c.Contains(x.hash, x.password) != x.known {
			t.Errorf("%q for %q: known is not %v", x.password, x.hash, x.known)
		}
	}
	if NewPasswordCache().Contains("hash", "right") {
		t.Error("another process knows it")
	}
	for i := range 3 * maxCachedPasswords {
		if c.Add("hash", fmt.Sprint(i)); len(c.digests) > maxCachedPasswords {
			t.Fatalf("%d are remembered", len(c.digests))
		}
	}
}
