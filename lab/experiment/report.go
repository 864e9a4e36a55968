package experiment

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

//go:embed report.html
var reportText string

var reportTemplate = template.Must(template.New("report").Parse(reportText))

// report holds the contents of the HTML page.
type report struct {
	Experiment Experiment
	Scale      Scale
	Date       string
	Took       time.Duration
	Command    string
	Version    string
	Machine    Machine
	Result     *Result
	Plots      []template.HTML
	Files      []string
}

// write writes report.html to the folder. The page needs no other file: it includes the plots.
func (r report) write(dir string, svgs [][]byte) (string, error) {
	for _, svg := range svgs {
		// The plots are safe: this program has drawn them from its own numbers and labels.
		r.Plots = append(r.Plots, template.HTML(inlineSVG(svg))) //nolint:gosec
	}
	var page bytes.Buffer
	if err := reportTemplate.Execute(&page, r); err != nil {
		return "", fmt.Errorf("write the report: %w", err)
	}
	path := filepath.Join(dir, "report.html")
	if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
		return "", fmt.Errorf("write the report: %w", err)
	}
	return path, nil
}

// inlineSVG removes the XML declaration, which HTML does not allow.
func inlineSVG(svg []byte) []byte {
	if i := bytes.Index(svg, []byte("<svg")); i >= 0 {
		return svg[i:]
	}
	return svg
}

// print prints the result on the terminal.
func (r *Result) print(w io.Writer) error {
	for _, t := range r.Tables {
		fmt.Fprintf(w, "\n%s\n", t.Title)
		tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  "+strings.Join(t.Columns, "\t"))
		for _, row := range t.Rows {
			fmt.Fprintln(tw, "  "+strings.Join(row, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	if len(r.Claims) > 0 {
		fmt.Fprintln(w)
	}
	for _, c := range r.Claims {
		fmt.Fprintf(w, "%s  %s: %s\n", c.Verdict(), c.Text, c.Result)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note    %s\n", n)
	}
	return nil
}
