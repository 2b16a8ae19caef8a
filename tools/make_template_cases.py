#!/usr/bin/env python3
"""Writes tests/data/template_cases.json: small templates over every construct zerope supports, with
the output of jinja2.

Needs jinja2 3.1 only. Set up as Hugging Face does it: sandbox, trim_blocks, lstrip_blocks, loop
controls, a tojson that does not escape for HTML, raise_exception, strftime_now (fixed clock), and a
generation tag. Run from the repository root. A case is {"t": template, "out": text}, or
{"t", "raised": words}, or {"t", "error": true}, which only says that zerope must fail, too.
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = 1735689845  # 2025-01-01 00:04:05 UTC


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(str(message))


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


def environment():
    env = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return env


VARS = {
    "s": "Hello World", "e": "", "u": "Größe ÀÉ 中文 😀 ß", "sp": "  \t pad \n ",
    "lines": "a\nb\n\nc\n", "q": "it's \"q\" <&>",
    "n": 7, "z": 0, "neg": -3, "f": 2.5, "big": 123456789012, "t": True, "fa": False, "no": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [], "nested": [[1, 2], [3], []],
    "mixed": [1, "a", None, True, 2.5],
    "d": {"a": 1, "b": [1, 2], "c": {"k": "v"}, "items": "shadow", "x y": 2}, "de": {},
    "m": [{"role": "system", "content": "S"}, {"role": "user", "content": "U1", "n": 2},
          {"role": "assistant", "content": None, "n": 1,
           "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
          {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]}],
    "tree": [{"name": "r", "kids": [{"name": "x", "kids": []},
                                    {"name": "y", "kids": [{"name": "z", "kids": []}]}]}],
}

# Each line becomes {{ line }}. Left out on purpose, where zerope refuses and jinja2 does not:
# printing a generator, batch(0); and where 'safe' differs, which gives no Markup here.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
2 ** 3 ** 2
-2 ** 2
- 2 | abs
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
7.5 // 2
-7.5 // 2
7.5 % 2
-7.5 % 2
7 / 2
6 / 2
2 ** -1
2 ** 0.5
0 ** 0
1_000 + 0x1F + 0o17 + 0b101
1e3
1.5e-5
1e16
1e15
123456789.123
0.1 + 0.2
1e100
1e-7
5 // 0
5 % 0
5 / 0
9223372036854775807
true + true
true * 3
1 + 1.0
'a' + 'b'
'a' + 1
1 + 'a'
'a' * 3
3 * 'ab'
'a' * -1
[1] + [2, 3]
[1] + (2,)
(1,) + (2,)
[1, 2] * 2
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] ~ {'k': "v'"}
1 ~ 2 + 3
1 + 2 ~ 3
'a' ~ undefined_thing ~ 'b'
undefined_thing
undefined_thing + 1
undefined_thing.x
undefined_thing['x']
d.missing
d.missing.more
d['missing']
d['missing']['more']
no.x
no['x']
n.x
s.x
l[10]
l[-1]
l[-4]
l['a']
l[true]
s[0]
s[-1]
s[99]
u[2]
u[12]
'abc'.1
l.0
nested.0.1
l[1.0]
d[1]
d[l]
s[1:4]
s[:3]
s[-3:]
s[::-1]
s[::2]
s[8:2:-2]
s[5:1]
s[:-1]
s[none:3]
u[1:8]
u[::-1]
u[::3]
l[::-1]
l[1:]
l[:100]
l[-100:2]
l[::0]
(1, 2, 3)[1:]
d[1:2]
no[1:]
range(5)[1:3] | list
'a' < 'b'
'a' < 'B'
'ab' < 'abc'
'é' > 'z'
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
1 == '1'
none == none
none == undefined_thing
undefined_thing == undefined_other
undefined_thing == none
'1' < 2
none < 1
[1, 2] < [1, 3]
[1, 2] == [1, 2.0]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
{'a': 1} == {'b': 1}
{'a': 1} != {'a': 1}
1 != 2
1 <= 1 >= 1
'a' in 'cab'
'x' in 'cab'
'x' not in 'cab'
'' in ''
1 in [1, 2]
'1' in [1, 2]
1.0 in [1, 2]
'a' in d
'a' in undefined_thing
1 in 'a'
1 in 5
'k' in d.c
none in mixed
'a' not in ['a'] == false
not 1 in [2]
not true
not none
not 'a'
not [] and true
true and 'x'
'' and 'x'
'' or 'x'
'a' or 'x'
false or none
none or false or 0
1 and 2 or 3
0 and 2 or 3
not 0 == 0
'y' if true
'y' if false
'y' if false else 'n'
'y' if n > 5 else 'm' if n > 3 else 'n'
('y' if false).x
(1, 2)
(1,)
()
1, 2
[1, 'a', [2], {'k': none}, true, 1.5, 'it\'s', "say \"x\""]
['\n\t\\ \x00 \x7f \u00e9 \u200b']
['a\'b"c']
{'a': 1, 'b': [1], 'c': {'d': 'e'}}
{1: 'a', 2.5: 'b', none: 'c', true: 'd'}
{1: 'a', 1.0: 'b', true: 'c'}
{(1, 2): 3}[(1, 2)]
{[1]: 2}
{}
[]
'a' 'b' "c"
'x\ny\tz\\'
"\x41\u00e9\U0001F600\101\d"
'it''s'
true
True
None
range(5)
range(2, 8, 3) | list
range(5, 0, -2) | list
range(0)
range(3) | length
range(1000000)
range(1, 2, 0)
3 in range(5)
range('a')
dict(a=1, b='x')
dict(d, z=3)
dict([('a', 1), ['b', 2]])
dict(**{'k': 1})
namespace(a=1).a
namespace({'a': 2}, b=3).b
namespace().x
namespace(a=1)
-n
+n
-f
--n
- -n
-s
+s
-undefined_thing
n.__class__
s.__len__
[n, f, s, t, no]
(n, f)
s is string
n is string
n is number
f is number
t is number
n is integer
t is integer
f is float
t is boolean
n is boolean
no is none
undefined_thing is none
undefined_thing is defined
n is defined
d.a is defined
d.zz is defined
d.zz is undefined
d.zz is not defined
l is iterable
s is iterable
n is iterable
d is iterable
undefined_thing is iterable
l is sequence
s is sequence
d is sequence
n is sequence
undefined_thing is sequence
d.values() is sequence
(l | map('string')) is sequence
(l | map('string')) is iterable
range(3) is sequence
d is mapping
l is mapping
namespace() is mapping
n is odd
n is even
n is divisibleby 7
n is divisibleby(3)
f is odd
neg is odd
neg is even
s is odd
s is lower
s is upper
'abc' is lower
'ABC1' is upper
'1' is upper
'ǅ' is upper
n is eq 7
n is equalto(7.0)
n is ne 7
n is lt 8
n is lessthan 7
n is le 7
n is gt 6
n is greaterthan 7
n is ge 7
n is in [1, 7]
n is in(l)
n is not in l
'a' is in 'abc'
t is true
fa is false
n is true
no is sameas none
t is sameas true
n is sameas 7
l is sameas l
l is sameas [3, 1, 2]
s is callable
range is callable
undefined_thing is callable
'upper' is filter
'nope' is filter
'odd' is test
s is escaped
n is nope
not n is odd
n is odd and f is float
n is not odd or true
n is defined and n
s is string if true else 1
n is divisibleby 7 and true
s | upper
s | lower
u | upper
u | lower
u | title
u | capitalize
'ΑΣ ΑΣΑ Σ' | lower
'ŉ ﬁ ǆ' | upper
'ŉ ﬁ ǆ' | title
'İ' | lower
n | upper
no | upper
undefined_thing | upper
'hello wOrld-foo (bar) [baz] {q} <r> a_b o\'neil' | title
'hELLO wORLD' | capitalize
'éa' | capitalize
sp | trim
'xxaxx' | trim('x')
'abcba' | trim('ab')
n | trim
sp | trim | length
'\u00a0\u2003a\u3000\x1f' | trim
'\ufeffa' | trim | length
s | replace('l', 'L')
s | replace('l', 'L', 1)
s | replace('', '-')
'aé' | replace('', '.', 2)
s | replace('zz', 'y')
12321 | replace(2, 'x')
s | length
u | length
l | length
d | length
e | length
n | length
undefined_thing | length
(l | map('string')) | length
l | count
s | first
e | first
l | first
le | first
d | first
s | last
l | last
le | last
d | last
(l | map('string')) | last
(l | map('string')) | first
l | join
l | join(', ')
l | join(',', attribute='x')
m | join('|', attribute='role')
mixed | join('-')
s | join('.')
undefined_thing | join
no | join
d | join(',')
[1, [2, 'x']] | join(1)
l | list
s | list
u | list | length
d | list
n | list
undefined_thing | list
no | list
d | items | list
undefined_thing | items | list
l | items | list
d | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort(true)
{'b': 1, 'A': 2, 'c': 0} | dictsort(false, 'value')
{'b': 1, 'A': 2, 'c': 0} | dictsort(by='value', reverse=true)
{'b': 1, 2: 2} | dictsort
l | dictsort
l | sort
l | sort(reverse=true)
ls | sort
ls | sort(case_sensitive=true)
ls | sort(true)
mixed | sort
m | sort(attribute='role') | map(attribute='role') | list
[{'a': 2, 'b': 1}, {'a': 1, 'b': 2}, {'a': 2, 'b': 0}] | sort(attribute='a,b')
[{'a': {'k': 2}}, {'a': {'k': 1}}] | sort(attribute='a.k')
[[2, 'x'], [1, 'y']] | sort(attribute=0)
[[2, 'x'], [1, 'y']] | sort(attribute='1')
'bca' | sort
d | sort
[3, 1.5, true] | sort
l | reverse | list
s | reverse
u | reverse
(1, 2) | reverse | list
d | reverse | list
n | reverse
(l | map('string')) | reverse | list
l | min
l | max
le | min
ls | min
ls | max
ls | max(case_sensitive=true)
m | min(attribute='role')
mixed | max
l | sum
[1.5, 2] | sum
le | sum
[[1], [2]] | sum(start=[])
m | sum(attribute='n')
[{'v': 1}, {'v': 2}] | sum(attribute='v')
[{'v': 1}, {'v': 2}] | sum('v', 10)
['a'] | sum
[1, 2, 1, 'a', 'A'] | unique | list
[1, 2, 1, 'a', 'A'] | unique(true) | list
m | unique(attribute='role') | map(attribute='role') | list
[[1], [1]] | unique | list
[1, 1.0, true] | unique | list
m | map(attribute='role') | list
m | map(attribute='nope') | list
m | map(attribute='n', default=0) | list
m | map(attribute='n.x', default=0) | list
m | map(attribute='n.x') | list
m | map(attribute='content.0.text', default='-') | list
nested | map(attribute=0) | list
ls | map('upper') | list
ls | map('replace', 'a', 'z') | join
ls | map('default', 'x', true) | list
l | map('nope') | list
l | map | list
le | map('upper') | list
no | map('upper') | list
n | map('upper') | list
z | map('upper') | list
undefined_thing | map('upper') | list
s | map('upper') | join('.')
l | map(attribute='x', nope=1) | list
l | select('odd') | list
l | select | list
[0, 1, '', 'a', none] | select | list
[0, 1, '', 'a', none] | reject | list
l | reject('odd') | list
l | select('gt', 1) | list
l | select('>', 1) | list
l | select('in', [1, 9]) | list
l | select('nope') | list
mixed | select('string') | list
m | selectattr('role', 'equalto', 'user') | map(attribute='content') | list
m | selectattr('role', '==', 'user') | list | length
m | selectattr('n') | map(attribute='n') | list
m | selectattr('n', 'defined') | list | length
m | rejectattr('n') | map(attribute='role') | list
m | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list
m | rejectattr('role', 'equalto', 'system') | list | length
m | selectattr('content', 'string') | list | length
m | selectattr('tool_calls', 'defined') | first | tojson
m | selectattr | list
m | selectattr('role', 'equalto', 'nobody') | first
'yes' if m | selectattr('role', 'equalto', 'nobody') else 'no'
'yes' if m | selectattr('role', 'equalto', 'nobody') | list else 'no'
l | batch(2) | list
l | batch(2, 'x') | list
le | batch(2) | list
l | slice(2) | list
l | slice(2, 'x') | list
range(7) | slice(3) | list
n | default('x')
undefined_thing | default('x')
undefined_thing | default
undefined_thing | d('x')
e | default('x')
e | default('x', true)
e | default('x', boolean=true)
no | default('x')
no | default('x', true)
d.zz | default('x')
d.zz.y | default('x')
d.zz | default(none)
'12' | int
' 12 ' | int
'-12' | int
'+7' | int
'1_000' | int
'1__0' | int
'12.7' | int
'abc' | int
'abc' | int(5)
'abc' | int(default=-1)
'0x1F' | int(base=16)
'1F' | int(base=16)
'0b11' | int(base=2)
'z' | int(0, 36)
2.9 | int
-2.9 | int
true | int
none | int
[] | int
undefined_thing | int
'1e3' | int
'inf' | int
'' | int
'1.5' | float
'abc' | float
'abc' | float(1.5)
' -1e3 ' | float
'inf' | float
'-infinity' | float
'nan' | float
'0x10' | float
none | float
3 | float
1e400 | float
neg | abs
-2.5 | abs
s | abs
true | abs
2.5 | round
3.5 | round
2.567 | round(2)
2.675 | round(2)
2.1 | round(method='ceil')
2.9 | round(0, 'floor')
2.125 | round(2, 'ceil')
7 | round
7 | round(2)
7 | round(1, 'floor')
s | round
2.5 | round(method='nope')
n | string
f | string
no | string
l | string
undefined_thing | string | length
q | escape
q | e
q | safe
q | string
[q]
'%s and %d' | format('x', 3)
'%s' | format(l)
'%(a)s' | format(a=1)
'%5.2f|%-6s|%06d|%+d' | format(3.14159, 'ab', 42, 5)
'%x|%X|%o|%e|%g|%%' | format(255, 255, 8, 12345.678, 0.0001)
'%s %s' | format('x')
'%s' | format('x', 'y')
'%d' | format('x')
'%r' | format('x')
'%c%c' | format(65, 'B')
'%.2s' | format('abcdef')
'%5s|%-5s|' | format('ab', 'cd')
'%*d' | format(5, 42)
'%s' % 'x'
'%s-%s' % (1, 2)
'%(k)s' % {'k': 'v'}
'%d%%' % 50
'%s' % [1, 2]
'%i' % 3.9
'%5d|%-5d|%05d' % (1, 2, -3)
'abc' | center(7)
'ab' | center(5)
'ab' | center(1)
'a b  c_d é' | wordcount
lines | indent
lines | indent(2)
lines | indent(2, true)
lines | indent(2, false, true)
lines | indent('> ', true, true)
'a' | indent
'' | indent
'\n' | indent(1, true)
'a\n\nb' | indent(1, blank=true)
'a\r\nb\x0bc' | indent(2)
n | indent
d | tojson
l | tojson
no | tojson
undefined_thing | tojson
q | tojson
u | tojson
u | tojson(ensure_ascii=true)
'\x00\x1f\x7f\u2028' | tojson
'\x00\x1f\x7f\u2028\U0001F600' | tojson(true)
d | tojson(indent=2)
d | tojson(indent=0)
d | tojson(indent='--')
nested | tojson(indent=1)
d | tojson(separators=(',', ':'))
d | tojson(indent=2, separators=(',', ':'))
{'b': 1, 'a': 2} | tojson(sort_keys=true)
{1: 'a', none: 'b', true: 'c', 2.5: 'd'} | tojson
{(1, 2): 3} | tojson
(1, 2) | tojson
range(3) | tojson
range(3) | list | tojson
[1.0, 1e16, 0.1, 1e-7, 'inf' | float, 'nan' | float, '-inf' | float] | tojson
(l | map('string')) | tojson
de | tojson(indent=4)
[[], {}] | tojson(indent=4)
big | tojson
s | nope
s | upper | lower | title
s | upper ~ s | lower
s | length + 1
-5 | abs + 1
(s ~ 'x') | upper
'a' + 'b' | upper
s.upper()
s.lower()
u.upper()
u.title()
"they're bill's friends".title()
'hELLO'.capitalize()
'Hello'.swapcase()
sp.strip()
sp.lstrip()
sp.rstrip()
'xxabxx'.strip('x')
'abc'.strip('')
'xxab'.lstrip('xa')
'abxx'.rstrip('bx')
'abc'.strip(none)
'a b  c '.split()
' a b  c '.split(' ')
'a,b,c'.split(',')
'a,b,c'.split(',', 1)
'a,b,c'.split(',', maxsplit=1)
'a,b,c'.rsplit(',', 1)
'a b  c '.split(none, 1)
' a b  c '.rsplit(none, 1)
' a b  c '.split(none, 0)
''.split()
''.split(',')
'a'.split('')
'a--b--c'.split('--')
'a--b--c'.rsplit('--')
'<think>x</think>y'.split('</think>')[-1].lstrip('\n')
'<think>x</think>y'.split('</think>')[0].rstrip('\n').split('<think>')[-1]
lines.splitlines()
lines.splitlines(true)
'a\r\nb\rc\x0bd\u2028e'.splitlines()
s.startswith('Hell')
s.startswith('x')
s.startswith(('x', 'H'))
s.startswith('W', 6)
s.startswith('', 99)
s.endswith('ld')
s.endswith(('x', 'd'))
s.endswith('lo', 0, 5)
s.startswith(1)
s.replace('l', 'L')
s.replace('l', 'L', 1)
s.find('o')
s.find('o', 5)
s.find('zz')
u.find('中')
s.rfind('o')
s.rfind('o', 0, 6)
s.index('W')
s.index('zz')
s.count('l')
s.count('')
'aaaa'.count('aa')
s.count('l', 3)
', '.join(['a', 'b'])
', '.join([1])
'-'.join('abc')
''.join([])
'abc'.isdigit()
'123'.isdigit()
''.isdigit()
'abc1'.isalnum()
'abc'.isalpha()
' \t'.isspace()
'ABC'.isupper()
'abc'.islower()
'5'.zfill(3)
'-5'.zfill(4)
'ab'.ljust(4) ~ '|'
'ab'.rjust(4, '*')
'ab'.center(5, '*')
'abc'.removeprefix('a')
'abc'.removesuffix('c')
'abc'.removeprefix('x')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'abc'.rpartition('=')
'{} {}'.format('a', 1)
'{0} {1} {0}'.format('a', 'b')
'{x}'.format(x=1)
'{{}} {:>5}|{:<5}|{:^5}|{:05d}|{:.2f}'.format('a', 'b', 'c', 42, 3.14159)
'{}'.format()
'{:*^9}'.format('mid')
'{!r}'.format('x')
'{0[0]}'.format(l) if false else ''
s.nope()
d.keys()
d.values()
d.items()
d.keys() | list
d.items() | list
d['items']
d.get('a')
d.get('zz')
d.get('zz', 'dflt')
d.get('zz', default='x') if false else 'skip'
d.c.k
d['c']['k']
d['x y']
d.keys() | length
d.keys()[0]
d.items() | first
d.copy() == d
l.index(1)
l.count(3)
l.index(99)
(1, 2).index(2)
l.copy() + [1]
l.append(1)
cycler('a', 'b').next()
cycler('a', 'b').current
cycler()
joiner()()
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y %H:%M:%S')
strftime_now('%A %B %j')
strftime_now('')
raise_exception('Words: ' ~ n)
raise_exception('é "q"')
raise_exception()
nope()
s()
n()
range()
s.upper(1)
s | upper(1)
s | trim(nope=1)
m[0].role
m[0]['role']
m[-1].content[0].text
m[1:] | length
m[0].content | trim
(m | first).role
(m | last).content | length
m[2].tool_calls[0].function.arguments | tojson
m[2].content is none
m[0].tool_calls is defined and m[0].tool_calls
m[0].tool_calls
m[0].get('tool_calls', []) | length
m | map(attribute='content') | select('string') | join(',')
[m[0]]
1 if
1 +
(1
[1, 2
{'a' 1}
{'a': }
a b
foo(1, a=2, 3)
foo(a=1, a=2)
'unclosed
1 is
x |
s.
s[
s[]
l[1,2]
lambda x: 1
007
1.2.3
@
'\ud800'
'\xZZ'
1 is odd is even
"""

# Whole templates.
TEMPLATES = [
    "a\n",
    "a\n\n",
    "\n",
    "",
    "a\r\nb\rc\n",
    "{{ 'a\r\nb' }}",
    "{% if true %}\n  x\n{% endif %}\ny",
    "  {% if true %}\n  x\n  {% endif %}\n  y",
    "a {% if true %} b {% endif %} c",
    "a\n  {%- if true -%}  \n b \n {%- endif -%} \n c",
    "a\n  {%+ if true %}\nb{%+ endif %}\nc",
    "a  {{- 1 -}}  b",
    "a {{+ 1 }} b",
    "a\n    {{ 1 }}\n  b",
    "{# c #}\nx",
    "  {# c #}\nx",
    "a {# c #} b",
    "a {#- c -#} b",
    "{# a\nb #}\n\nc",
    "{#\n#}",
    "{#+ x +#}\ny",
    "{% if true +%}\nx{% endif %}",
    "{% if true -%}\n\n  x\n{%- endif %}\ny",
    "{%- if true %}{% endif -%}",
    "\u3000{%- if true -%}\u2003x{% endif %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}",
    "{% raw %}\n a {% endraw %}\n b",
    "x {%- raw -%} {{ y }} {%- endraw -%} z",
    "  {% raw %}a\n  {% endraw %}\nb",
    "{% raw %}x",
    "{# x",
    "{{ 1",
    "{% if true",
    "{{ 1 }",
    "{% if %}",
    "{% endif %}",
    "{% if true %}",
    "{% for x in l %}",
    "{% nope %}",
    "{% if true %}{% endfor %}",
    "{% if a %}{% else %}{% else %}{% endif %}",
    "{{ }}",
    "{%%}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {}}}}",
    "{{ [1}] }}",
    "{{ 1) }}",
    "{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}",
    "{% if e %}1{% elif no %}2{% elif l %}3{% endif %}",
    "{% if n: %}x{% endif %}",
    "{% if undefined_thing %}1{% else %}2{% endif %}",
    "{% if (n, ) %}x{% endif %}",
    "{% if n if t else f %}x{% endif %}",
    "{% for x in l %}{{ x }},{% endfor %}",
    ("{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last "
     "}}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ "
     "loop.depth0 }};{% endfor %}"),
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    ("{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% "
     "endfor %}"),
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
    "{% for x in le %}{{ x }}{% else %}empty{% endfor %}",
    "{% for x in no %}{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{% for x in undefined_thing %}{{ x }}{% else %}none{% endfor %}",
    "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for k in d %}{{ k }},{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }};{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    ("{% for x in l if x > 1 %}{{ x }}:{{ loop.index }}/{{ loop.length }}{{ loop.last "
     "}} {% endfor %}"),
    "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l if loop.index %}{% endfor %}",
    ("{% for x in range(6) if x is even %}{{ loop.previtem }}{{ x }}{{ loop.nextitem }} "
     "{% endfor %}"),
    ("{% set ns = namespace(stop=false) %}{% for x in l if not ns.stop %}{{ x }}{% set "
     "ns.stop = true %}{% endfor %}"),
    ("{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% "
     "break %}{% endif %}{{ x }}{% endfor %}"),
    ("{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y "
     "}} {% endfor %}{% endfor %}"),
    "{% for x in l %}{% break %}{% else %}e{% endfor %}",
    "{% break %}",
    "{% continue %}",
    ("{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% "
     "endfor %}"),
    ("{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ "
     "loop.index }} {% endfor %}{% endfor %}"),
    ("{% for node in tree recursive %}{{ node.name }}{{ loop.depth }}{% if node.kids "
     "%}({{ loop(node.kids) }}){% endif %}{% endfor %}"),
    "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{{ loop }}",
    "{% for x in l %}{% endfor %}{{ x }}",
    "{% for x in l %}{% set y = x %}{% endfor %}{{ y }}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}",
    "{% for x in (1, 2) %}{{ x }}{% endfor %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in l | sort | reverse %}{{ x }}{% endfor %}",
    "{% for x in l[::-1] %}{{ x }}{% endfor %}",
    "{% for x in [1, 2] + [3] %}{{ x }}{% endfor %}",
    "{% for x in l if x if t else f %}{{ x }}{% endfor %}",
    "{% for m in m if m.role == 'user' %}{{ m.content }}{% endfor %}",
    "{% for x in g %}{% endfor %}{{ 'a' if x else 'b' }}",
    "{% for true in l %}{% endfor %}",
    "{% for x.y in l %}{% endfor %}",
    ("{% set g = l | map('string') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g "
     "%}{{ x }}{% else %}spent{% endfor %}"),
    ("{% set a = [1] %}{% for x in a %}{{ x }}{% if x < 3 %}{% set _ = a.append(x + 1) "
     "%}{% endif %}{% endfor %}"),
    "{% set x = 1 %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = 'xy' %}{{ a }}{{ b }}",
    "{% set a, b = [1] %}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}",
    "{% set x | upper | trim %} a{{ n }}b {% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y }}",
    ("{% set ns = namespace(a=1) %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor "
     "%}{{ ns.a }}"),
    "{% set ns.a = 1 %}",
    "{% set n.a = 1 %}",
    "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}",
    "{% set ns = namespace() %}{% set ns.x %}t{% endset %}{{ ns.x }}",
    "{% set 1 = 2 %}",
    "{% set x.y.z = 1 %}",
    "{% set d['a'] = 1 %}",
    "{% set true = 1 %}",
    "{% set x %}a",
    "{% set x = %}",
    "{% if true %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% if false %}{% set n = 1 %}{% endif %}{{ n }}",
    "{% set n = n + 1 %}{{ n }}",
    "{% set s = s ~ '!' %}{% set s = s ~ '?' %}{{ s }}",
    "{% set x = 'a' %}{% set y = x ~ 'b' %}{% set z = x ~ 'c' %}{{ x }}{{ y }}{{ z }}",
    "{% set x = x + 1 %}",
    "{% with %}{% endwith %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with a = 1 %}{% set n = 2 %}{{ n }}{% endwith %}{{ n }}",
    "{% with a %}{% endwith %}",
    ("{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ "
     "f(b=4, a=5) }} {{ f() }}"),
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a, b) %}{% endmacro %}",
    "{% macro f(a=1, b) %}{% endmacro %}",
    "{% macro f(a) %}[{{ a is defined }}]{% endmacro %}{{ f() }}",
    "{% macro f(x, y=x) %}{{ y }}{% endmacro %}{{ f(1) }}",
    "{% macro f(x) %}{{ n }}{{ x }}{% set n = 9 %}{% endmacro %}{{ f(1) }}{{ n }}",
    "{% macro f() %}{{ late }}{% endmacro %}{% set late = 1 %}{{ f() }}",
    ("{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ "
     "f(3) }}"),
    "{% macro f() %} x {% endmacro %}[{{ f() | trim }}]{{ f() | length }}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro f %}{% endmacro %}",
    "{% macro f() %}{% break %}{% endmacro %}",
    "{% for x in l %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}",
    "{% if true %}{% macro f() %}in{% endmacro %}{% endif %}{{ f() }}",
    ("{% macro f(x) %}{% for y in x %}{{ y }}{% endfor %}{% endmacro %}{% for z in "
     "nested %}{{ f(z) }};{% endfor %}"),
    "{{ f() }}{% macro f() %}{% endmacro %}",
    ("{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}body{{ n }}{% endcall "
     "%}"),
    ("{% macro f() %}<{{ caller(1, b=2) }}>{% endmacro %}{% call(a, b=3) f() %}{{ a "
     "}}{{ b }}{% endcall %}"),
    "{% macro f() %}x{% endmacro %}{% call f() %}body{% endcall %}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}",
    "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}",
    "{% macro f(caller) %}{{ caller() }}{% endmacro %}{% call f() %}b{% endcall %}",
    "{% call f %}{% endcall %}",
    "{% call n() %}{% endcall %}",
    ("{% macro f() %}{{ caller() }}{{ kwargs }}{% endmacro %}{% call f(k=1) %}b{% "
     "endcall %}"),
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aXa{% endfilter %}",
    "{% filter nope %}a{% endfilter %}",
    "{% filter trim %}{% set y = 1 %} a {% endfilter %}{{ y }}",
    "{% filter length %}abc{% endfilter %}",
    "{% for x in l %}{% continue %}{% else %}e{% endfor %}",
    "{% for x in l %}{% if x == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}",
    "{{ {(1, 2): 'v'}[1, 2] }}",
    ("{% macro f(caller=none) %}{{ caller() if caller else 'no' }}{% endmacro %}{{ f() "
     "}}{% call f() %}b{% endcall %}"),
    "{% set x | length %}abc{% endset %}{{ x + 1 }}",
    "{% print n %}",
    "{% print n, s %}",
    "{% generation %}a{{ n }}{% endgeneration %}b",
    "{% generation %}{% set y = 1 %}{% endgeneration %}{{ y }}",
    "{%- generation -%}\n  a\n{%- endgeneration -%}\nb",
    "{% for x in l %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}",
    "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set j = joiner() %}{{ j() }}a{{ j() }}b",
    ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ "
     "c.next() }}{{ c.reset() }}{{ c.next() }}"),
    ("{% set a = [] %}{% set _ = a.append(1) %}{% set _ = a.extend([2, 3]) %}{% set _ = "
     "a.insert(0, 0) %}{{ a }}{{ a.pop() }}{{ a.pop(0) }}{{ a }}{% set _ = a.reverse() "
     "%}{{ a }}"),
    "{% set a = [1] %}{% set b = a %}{% set _ = b.append(2) %}{{ a }}",
    "{% set a = [] %}{{ a.append(1) }}{{ a }}",
    "{{ [].pop() }}",
    "{% set a = [1] %}{{ a.insert(5, 2) }}{{ a.insert(-9, 0) }}{{ a }}",
    "{{ range(3) | map('string') | map('upper') | join }}",
    "{{ n if n is defined else 'x' }}{{ y if y is defined else 'x' }}",
    "{{ raise_exception('stop') if n > 5 }}",
    "{% if n > 5 %}{{ raise_exception('stop here') }}{% endif %}",
    ("{% for x in m %}{% if loop.index0 == 1 and x.role == 'user' %}{{ "
     "raise_exception('Bad role: ' + x.role) }}{% endif %}{% endfor %}"),
    ("{% set x = namespace(v=[]) %}{% for i in l %}{% set x.v = x.v + [i] %}{% endfor "
     "%}{{ x.v }}"),
    "{% for i in range(0, m | length, 2) %}{{ m[i].role }}{% endfor %}",
    "{{ m[loop] }}",
    "{% set i = 1 %}{{ m[i].role }}{{ m[i - 1]['role'] }}",
    "{% for x in range(3) %}{{ '{' }}{{ x }}{{ '}' }}{% endfor %}",
    "{% extends 'x' %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% do l.append(1) %}",
    "{{ 'a' }}{# c #}{{ 'b' }}\n{% if t %}c\n{% endif %}d\n",
    "\n\n{% if t %}\n\nx\n\n{% endif %}\n\n",
    "{% set x = 1 -%}\n  y",
    "{% set x = 1 %}  \ny",
    "x\n\t{% if t %}\ty{% endif %}\n",
    "{{ '{{' }}{{ '%}' }}",
    "{{ \"}}\" }}",
    "{% if '%}' %}a{% endif %}",
    "a{{ '' }}\n{{ '' }}\nb",
    "{%if t%}x{%endif%}",
    "{%-if t-%} x {%-endif-%}",
    "{{'a'}}{{-'b'-}}c",
    "{{ -1 }}{{- -1 }}",
]


def render(env, source, variables):
    try:
        out = env.from_string(source).render(**variables)
        out.encode("utf-8")  # a lone surrogate is no text to us
        return {"out": out}
    except Raised as e:
        return {"raised": str(e)}
    except Exception as e:  # any other failure: we only promise to fail as well
        return {"error": True, "why": f"{type(e).__name__}: {e}"}


def cases():
    env = environment()
    for line in EXPRESSIONS.strip().split("\n"):
        source = "{{ " + line + " }}"
        yield {"t": source, **render(env, source, json.loads(json.dumps(VARS)))}
    for source in TEMPLATES:
        yield {"t": source, **render(env, source, json.loads(json.dumps(VARS)))}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/data/template_cases.json"
    rows = list(cases())
    for row in rows:
        if "--why" not in sys.argv:
            row.pop("why", None)
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"now": %d, "jinja2": "%s", "vars":\n%s,\n"cases": [\n'
                % (NOW, jinja2.__version__, json.dumps(VARS, ensure_ascii=False)))
        f.write(",\n".join(json.dumps(r, ensure_ascii=False) for r in rows))
        f.write("\n]}\n")
    print(len(rows), "cases,", sum("error" in r for r in rows), "errors")


if __name__ == "__main__":
    main()
