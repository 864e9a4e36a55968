package mark

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What one side writes the other reads, and only entries that are the same are known.
func TestTagsAndList(t *testing.T) {
	e := Entry{Queue: 4, Mark: 7, Own: 46}
	if got, ok, err := Read(4, e.Tags()); got != e || !ok || err != nil {
		t.Errorf("%v, %v, %v", got, ok, err)
	}
	list := List([]Entry{{1, 3, 0}, e})
	if !Contains(list, e) || !Contains(list, Entry{1, 3, 0}) {
		t.Errorf("%q does not know what it is made of", list)
	}
	for _, other := range []Entry{{4, 7, 0}, {4, 3, 46}, {14, 7, 46}, {1, 3, 46}} {
		if Contains(list, other) {
			t.Errorf("%q knows %v", list, other)
		}
	}
	kept := map[string]string{TagKept: "50"}
	if got, ok, err := ReadKept(4, kept); got != (Entry{4, 50, 50}) || !ok || err != nil {
		t.Errorf("%v, %v, %v", got, ok, err)
	}
	if _, ok, err := ReadKept(4, e.Tags()); ok || err != nil {
		t.Errorf("a queue without such a DSCP has one: %v, %v", ok, err)
	}
	if Contains("", e) {
		t.Error("an empty list knows something")
	}
}

func TestReadRefuses(t *testing.T) {
	for name, tags := range map[string]map[string]string{
		"out of range": {TagMark: "3", TagOwn: "64"},
		"no number":    {TagMark: "EF", TagOwn: "0"},
		"huge":         {TagMark: "300", TagOwn: "0"},
	} {
		if e, ok, err := Read(1, tags); err == nil || ok {
			t.Errorf("%s: %v", name, e)
		}
	}
	for name, tags := range map[string]map[string]string{
		"no tags": nil, "no mark": {TagOwn: "0"}, "nothing to give back": {TagMark: "3"},
	} {
		if e, ok, err := Read(1, tags); err != nil || ok {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}
