package network

import "reflect"

// keptPart is what a part of a reply takes besides what it holds.
const keptPart = 128

// footprint returns how many bytes lie behind the references of a value. Decoded messages may
// take many times what they are on the wire: this is what counts towards the quota.
func footprint(v reflect.Value) (bytes int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if !v.IsNil() {
			return int64(v.Type().Elem().Size()) + footprint(v.Elem())
		}
	case reflect.Interface:
		return footprint(v.Elem())
	case reflect.Slice:
		bytes = int64(v.Cap()) * int64(v.Type().Elem().Size())
		if refers(v.Type().Elem()) {
			for i := range v.Len() {
				bytes += footprint(v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			bytes += footprint(v.Field(i))
		}
	}
	return bytes
}

// refers reports whether something may lie behind values of a type.
func refers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice:
		return true
	case reflect.Struct:
		for i := range t.NumField() {
			if refers(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
