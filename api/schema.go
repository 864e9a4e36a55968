package api

import (
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const module = "github.com/sluice-net/sluice/"

// schemaName returns the name of a type in the OpenAPI document. Types of several packages may have
// the same name. Therefore the name of the service or package is put before the type's name: sos.Status
// and controller.Status become SosStatus and ControllerStatus.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path, ours := strings.CutPrefix(t.PkgPath(), module)
	if !ours || t.Name() == "" {
		return name
	}
	path = strings.TrimPrefix(path, "services/")
	if rest, ok := strings.CutPrefix(path, "kit"); ok {
		path = "service" + rest // types of the kit are common to all services
	}
	elements := strings.Split(path, "/")
	prefix := elements[0]
	if last, ok := strings.CutSuffix(elements[len(elements)-1], "api"); ok && last != "" {
		prefix = last
	}
	prefix = strings.ToUpper(prefix[:1]) + prefix[1:]
	if strings.HasPrefix(name, prefix) {
		return name
	}
	return prefix + name
}
