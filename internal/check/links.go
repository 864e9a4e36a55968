package check

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var mdLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// CheckLinks finds links in Markdown files to files of the tree that do not exist.
func CheckLinks(root string) ([]Problem, error) {
	problems, err := inMarkdown(root, deadLinks)
	if err != nil {
		return nil, fmt.Errorf("check links: %w", err)
	}
	return problems, nil
}

// inMarkdown calls look for the text of every Markdown file below root, and returns all problems.
func inMarkdown(root string, look func(root, rel, text string) []Problem) (problems []Problem, _ error) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (ignored(d.Name()) || d.Name() == "out" || d.Name() == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		problems = append(problems, look(root, filepath.ToSlash(rel), string(text))...)
		return nil
	})
	return problems, err
}

func deadLinks(root, rel, text string) []Problem {
	var problems []Problem
	number := 0
	for line := range strings.Lines(text) {
		number++
		for _, m := range mdLink.FindAllStringSubmatch(line, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			full := filepath.Join(root, filepath.Dir(rel), filepath.FromSlash(target))
			if _, err := os.Stat(full); err != nil {
				problems = append(problems, Problem{Path: rel, Line: number, Text: fmt.Sprintf("link to %s, which does not exist", m[1])})
			}
		}
	}
	return problems
}
