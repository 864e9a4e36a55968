package sources

import (
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	type counted struct{ n int }
	now := time.Unix(1000, 0)
	x := Table[string, counted]{New: func() *counted { return new(counted) }, Most: 2, ForgetAfter: 2 * time.Second, Keep: func(c *counted) bool { return c.n > 1 }}
	x.Find("a", now).n++
	x.Find("a", now).n++
	x.Find("b", now).n++
	if x.Find("c", now) != nil {
		t.Error("there is room for a third")
	}
	if x.Known("a").n != 2 || x.Known("c") != nil || x.Len() != 2 {
		t.Errorf("a is %v, c is %v, %d are remembered", x.Known("a"), x.Known("c"), x.Len())
	}
	now = now.Add(3 * time.Second)
	if x.Find("c", now) == nil {
		t.Error("b, which does nothing, has not made room")
	}
	if x.Known("a") == nil || x.Known("b") != nil {
		t.Error("what is to be kept was forgotten, or the other was not")
	}
}
