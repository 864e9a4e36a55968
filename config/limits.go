package config

import (
	"cmp"
	"encoding"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// inLimits says whether v is what its tag allows.
func inLimits(v reflect.Value, tag reflect.StructTag) bool {
	if words := tag.Get("oneof"); words != "" && !slices.Contains(strings.Split(words, "|"), v.String()) {
		return false
	}
	if pattern := tag.Get("pattern"); pattern != "" && v.String() != "" && !regexp.MustCompile(`^(?:`+pattern+`)$`).MatchString(v.String()) {
		return false
	}
	if low := tag.Get("min"); low != "" && compare(v, low) < 0 {
		return false
	}
	if high := tag.Get("max"); high != "" && compare(v, high) > 0 {
		return false
	}
	return true
}

// compare compares v with a limit written like a value of v's type. A limit
// that cannot be read is an error of this package, found by its tests.
func compare(v reflect.Value, limit string) int {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(limit)
		mustRead(err)
		return cmp.Compare(v.Int(), int64(d))
	case isText(v.Type()):
		l := reflect.New(v.Type())
		mustRead(l.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(limit)))
		return cmp.Compare(v.Int(), l.Elem().Int())
	case v.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(limit, 64)
		mustRead(err)
		return cmp.Compare(v.Float(), f)
	}
	i, err := strconv.ParseInt(limit, 10, 64)
	mustRead(err)
	return cmp.Compare(v.Int(), i)
}

func mustRead(err error) {
	if err != nil {
		panic("config: a limit in a tag: " + err.Error())
	}
}
