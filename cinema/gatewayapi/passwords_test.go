package gatewayapi

import (
	"fmt"
	"testing"
)

// What was right is known for its hash alone, and what is remembered is bounded.
func TestRightPasswords(t *testing.T) {
	r := NewRightPasswords()
	r.Remember("hash", "right")
	for _, x := range []struct {
		hash, password string
		known          bool
	}{{"hash", "right", true}, {"hash", "wrong", false}, {"other", "right", false}, {"hashr", "ight", false}, {"", "hashright", false}} {
		if r.Known(x.hash, x.password) != x.known {
			t.Errorf("%q for %q: known is not %v", x.password, x.hash, x.known)
		}
	}
	if NewRightPasswords().Known("hash", "right") {
		t.Error("another process knows it")
	}
	for i := range 3 * keptRight {
		if r.Remember("hash", fmt.Sprint(i)); len(r.all) > keptRight {
			t.Fatalf("%d are remembered", len(r.all))
		}
	}
}
