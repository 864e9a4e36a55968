package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cli/command"
)

// DeclaredCommands are the commands for what a service.Resource serves at a path: list,
// add, set and remove. S is what a request says of one, with its name in the field "name",
// and I what answers show. Flags and columns follow from their fields, by the tags json and
// doc.
func DeclaredCommands[S, I any](app *App, noun, path string) []*cobra.Command {
	list := GetCommand(app, "list", "List what there is", path, func(w io.Writer, all []I) {
		fields := fieldsOf(reflect.TypeFor[I]())
		for i, f := range fields {
			fmt.Fprint(w, strings.ToUpper(strings.ReplaceAll(f.name, "_", " ")), map[bool]string{true: "\n", false: "\t"}[i == len(fields)-1])
		}
		for _, x := range all {
			for i, f := range fields {
				fmt.Fprint(w, valueText(reflect.ValueOf(x).FieldByIndex(f.Index)), map[bool]string{true: "\n", false: "\t"}[i == len(fields)-1])
			}
		}
	})
	add := declareCommand[S](app, "add NAME", "Add a "+noun, func(string) (string, string) { return http.MethodPost, path })
	set := declareCommand[S](app, "set NAME", "Replace a "+noun, func(name string) (string, string) {
		return http.MethodPut, path + "/" + url.PathEscape(name)
	})
	return []*cobra.Command{list, add, set, RemoveCommand(app, "remove NAME", "Remove a "+noun, path)}
}

// declareCommand is a command that sends an S by what request says.
func declareCommand[S any](app *App, use, short string, request func(name string) (method, path string)) *cobra.Command {
	var fields []declaredField
	cmd := &cobra.Command{
		Use: use, Short: short, Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"name": args[0]}
			for _, f := range fields {
				if f.flag.Changed {
					body[f.name] = f.given()
				}
			}
			method, path := request(args[0])
			return app.Send(cmd, method, path, body, nil)
		},
	}
	for _, f := range fieldsOf(reflect.TypeFor[S]()) {
		if f.name != "name" {
			f.define(cmd.Flags())
			fields = append(fields, f)
		}
	}
	return cmd
}

// declaredField is a field of what is declared.
type declaredField struct {
	reflect.StructField
	name  string
	flag  *pflag.Flag
	given func() any // what the flag says
}

// fieldsOf are those that stand in a request or an answer, of embedded structs, too.
func fieldsOf(t reflect.Type) (out []declaredField) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && !f.Anonymous {
			out = append(out, declaredField{StructField: f, name: name})
		}
	}
	return out
}

// define makes the field a flag. What is neither a truth value, a number nor a list is
// written as text.
func (f *declaredField) define(flags *pflag.FlagSet) {
	name, doc := strings.ReplaceAll(f.name, "_", "-"), f.Tag.Get("doc")
	_, isText := reflect.New(f.Type).Interface().(interface{ UnmarshalText([]byte) error })
	switch kind := f.Type.Kind(); {
	case isText:
		v := flags.String(name, "", doc)
		f.given = func() any { return *v }
	case kind == reflect.Bool:
		v := flags.Bool(name, false, doc)
		f.given = func() any { return *v }
	case kind == reflect.Slice:
		v := flags.StringArray(name, nil, doc+"; may be repeated")
		f.given = func() any { return *v }
	case slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float64}, kind):
		v := flags.Float64(name, 0, doc)
		f.given = func() any { return *v }
	default:
		v := flags.String(name, "", doc)
		f.given = func() any { return *v }
	}
	f.flag = flags.Lookup(name)
}

// valueText is a value of an answer in a table.
func valueText(v reflect.Value) string {
	if v.Kind() == reflect.Slice {
		words := make([]string, v.Len())
		for i := range words {
			words[i] = valueText(v.Index(i))
		}
		return strings.Join(words, ", ")
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	var text string
	if json.Unmarshal(b, &text) == nil {
		return text
	}
	return string(b)
}
