package commands

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cli/command"
)

// Declared makes the commands for the declared items of one kind. S is the type of an item in
// requests, and I its type in answers. The flags follow from the fields of S and their tags json,
// doc and enum.
type Declared[S, I any] struct {
	App *App
	// Singular names one item, with its article.
	Singular string
	// Path is the path of the items in the API.
	Path string
	// Columns lists the columns of tables. If it is empty, all fields are shown.
	Columns string
	// Flags holds the names of those flags that are not named after their fields. A flag whose name
	// ends with -file names a file with the value.
	Flags map[string]string
	// Numbered reports whether the controller chooses the items' names.
	Numbered bool
}

// DeclaredCommands returns the commands list, show, add, set and remove for the items that a
// kit.Resource serves at a path.
func DeclaredCommands[S, I any](app *App, noun, path string) []*cobra.Command {
	d := Declared[S, I]{App: app, Singular: noun, Path: path}
	return []*cobra.Command{d.List(), d.Show(), d.Add(), d.Set(), d.Remove()}
}

// argument returns the placeholder for an item's name on the command line.
func (d Declared[S, I]) argument() string {
	if d.Numbered {
		return "ID"
	}
	return "NAME"
}

// List returns the command that lists all items.
func (d Declared[S, I]) List() *cobra.Command {
	return Get(d.App, "list", "List all of them", d.Path, Table[I](d.Columns))
}

// Show returns the command that shows one item.
func (d Declared[S, I]) Show() *cobra.Command {
	return Get(d.App, "show "+d.argument(), "Show "+d.Singular, d.Path, Fields[I])
}

// Remove returns the command that removes one item.
func (d Declared[S, I]) Remove() *cobra.Command {
	return Remove(d.App, "remove "+d.argument(), "Remove "+d.Singular, d.Path)
}

// Add returns the command that adds an item.
func (d Declared[S, I]) Add() *cobra.Command {
	use := "add NAME"
	if d.Numbered {
		use = "add"
	}
	return Send(d.App, use, "Add "+d.Singular, http.MethodPost, d.Path, Request[S](d.Flags), d.one)
}

// Set returns the command that replaces an item.
func (d Declared[S, I]) Set() *cobra.Command {
	return Send(d.App, "set "+d.argument(), "Replace "+d.Singular, http.MethodPut, d.Path+"/%s", Request[S](d.Flags), d.one)
}

// one prints an answer that shows one item.
func (d Declared[S, I]) one(w io.Writer, x I) { Table[I](d.Columns)(w, []I{x}) }

// Send returns a command that sends an S, made from its flags, to a path, and prints the answer
// with table. Its argument replaces %s in the path. If the argument is NAME and S has a field name,
// the argument is that field's value, too. If table is nil, there is no answer to print.
func Send[S, I any](app *App, use, short, method, path string, flags Request[S], table func(io.Writer, I)) *cobra.Command {
	var fields RequestFlags
	var file string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: command.ExactArgs(strings.Fields(use)[1:]...),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := fields.Body(file)
			if err != nil {
				return &command.UsageError{Err: err}
			}
			if strings.Contains(use, "NAME") && slices.Contains(namesOf(reflect.TypeFor[S]()), "name") {
				body["name"] = args[0]
			}
			return inFlags(Ask(app, cmd, method, FillPath(path, args), body, table), fields)
		},
	}
	fields = flags.Define(cmd)
	cmd.Flags().StringVar(&file, "file", "", "file with the request in JSON, as in the API, or - for standard input; other flags override it")
	return cmd
}

// Request holds the names of those flags that are not named after their fields in S.
type Request[S any] map[string]string

// RequestFlags holds the fields of a request and their flags.
type RequestFlags []flagged

// Define defines a flag for each field of S, except for the field that is the command's argument.
func (r Request[S]) Define(cmd *cobra.Command) (all RequestFlags) {
	for _, f := range fieldsOf(reflect.TypeFor[S]()) {
		if !strings.Contains(cmd.Use, strings.ToUpper(f.name)) {
			all = append(all, define(cmd.Flags(), f, r[f.name]))
		}
	}
	return all
}

// Body returns the request: the content of a JSON file, unless its name is empty, with the flags'
// values over it.
func (fields RequestFlags) Body(file string) (map[string]any, error) {
	body := map[string]any{}
	if file != "" {
		b, err := ReadInput(file)
		if err == nil {
			err = json.Unmarshal(b, &body)
		}
		if err != nil {
			return nil, fmt.Errorf("--file %s: %w", file, err)
		}
	}
	for _, f := range fields {
		if !f.flag.Changed {
			continue
		}
		value, err := f.given()
		if err != nil {
			return nil, fmt.Errorf("--%s %w", f.flag.Name, err)
		}
		body[f.name] = value
	}
	return body, nil
}

// inFlags replaces the names of fields in a controller's refusal by those of the flags that the
// user has typed. A field that came from a file keeps its name.
func inFlags(err error, fields RequestFlags) error {
	var refusal *client.Problem
	if !errors.As(err, &refusal) {
		return err
	}
	for i := range refusal.Errors {
		e := &refusal.Errors[i]
		for _, f := range fields {
			flag := "--" + f.flag.Name
			rest, of := strings.CutPrefix(e.Location, "body."+f.name)
			switch {
			case of && f.flag.Changed && (rest == "" || rest[0] == '.' || rest[0] == '['):
				e.Location = flag + rest
			case e.Location == "body" && e.Message == "expected required property "+f.name+" to be present":
				e.Location, e.Message, e.Value = flag, "is required", nil
			}
		}
	}
	return err
}

// ReadInput reads a file, or standard input for "-".
func ReadInput(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(file)
}

// flagged is a field of a request and its flag.
type flagged struct {
	field
	flag *pflag.Flag
}

// define defines the flag of a field. Values other than booleans, numbers and lists are written as
// text, and a struct as FIELD=VALUE,....
func define(flags *pflag.FlagSet, f field, name string) flagged {
	name = cmp.Or(name, strings.ReplaceAll(f.name, "_", "-"))
	doc, t := usage(f), indirect(f.Type)
	_, isText := reflect.New(t).Interface().(interface{ UnmarshalText([]byte) error })
	switch words := f.Tag.Get("enum"); {
	case strings.HasSuffix(name, "-file"):
		flags.String(name, "", "file with this: "+doc)
	case words != "":
		flags.Var(command.Word(new(string), "", strings.Split(words, ",")...), name, doc)
	case t.Kind() == reflect.Bool:
		flags.Bool(name, false, doc)
	case !isText && t.Kind() == reflect.Struct:
		flags.StringArray(name, nil, structUsage(doc, t))
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		flags.StringArray(name, nil, structUsage(doc, t.Elem()))
	case t.Kind() == reflect.Slice:
		flags.StringSlice(name, nil, doc+"; may be repeated")
	case !isText && reflect.TypeFor[float64]().ConvertibleTo(t):
		flags.Float64(name, 0, doc)
	default:
		flags.String(name, "", doc)
	}
	return flagged{f, flags.Lookup(name)}
}

// given returns the value of the flag in the form that the request needs.
func (f flagged) given() (any, error) {
	t, text := indirect(f.Type), f.flag.Value.String()
	if strings.HasSuffix(f.flag.Name, "-file") {
		b, err := os.ReadFile(text)
		return strings.TrimSpace(string(b)), err
	}
	switch f.flag.Value.Type() {
	case "bool":
		return strconv.ParseBool(text)
	case "float64":
		return strconv.ParseFloat(text, 64)
	case "stringSlice":
		return f.flag.Value.(pflag.SliceValue).GetSlice(), nil
	case "stringArray":
		list := f.flag.Value.(pflag.SliceValue).GetSlice()
		if t.Kind() == reflect.Struct {
			return described(t, strings.Join(list, ","))
		}
		all := make([]any, len(list))
		for i, text := range list {
			one, err := described(t.Elem(), text)
			if err != nil {
				return nil, err
			}
			all[i] = one
		}
		return all, nil
	}
	return text, nil
}

// indirect returns a type, or the type that a pointer type points to.
func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// usage returns a field's description in the style of a flag's.
func usage(f field) string {
	doc, example := []rune(strings.TrimSuffix(f.Tag.Get("doc"), ".")), f.Tag.Get("example")
	if len(doc) > 1 && unicode.IsLower(doc[1]) {
		doc[0] = unicode.ToLower(doc[0])
	}
	if example == "" || strings.Contains(string(doc), "like ") {
		return string(doc)
	}
	return string(doc) + ", like " + strings.NewReplacer("[", "", "]", "", `"`, "").Replace(example)
}

func structUsage(doc string, t reflect.Type) string {
	return doc + ": FIELD=VALUE,... of " + strings.Join(namesOf(t), ", ") + "; may be repeated"
}

func namesOf(t reflect.Type) (names []string) {
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

// described parses the fields of a struct from FIELD=VALUE,....
func described(t reflect.Type, all string) (map[string]any, error) {
	out := map[string]any{}
	for text := range strings.SplitSeq(all, ",") {
		name, value, ok := strings.Cut(text, "=")
		if !ok || value == "" || name == "" {
			return nil, fmt.Errorf("%q: write FIELD=VALUE, like %s=VALUE", text, namesOf(t)[0])
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("%q: %s is given twice", text, name)
		}
		i := slices.Index(namesOf(t), name)
		if i < 0 {
			return nil, fmt.Errorf("%q: there is no field %q: write one of %s", text, name, strings.Join(namesOf(t), ", "))
		}
		out[name] = scalar(fieldsOf(t)[i].Type, value)
	}
	return out, nil
}

// scalar returns a value as JSON has it: a number or boolean if the field is one and the text can
// be parsed, and otherwise the text.
func scalar(t reflect.Type, text string) any {
	t = indirect(t)
	v := reflect.New(t)
	if t.Kind() != reflect.String && json.Unmarshal([]byte(text), v.Interface()) == nil {
		return v.Elem().Interface()
	}
	return text
}
