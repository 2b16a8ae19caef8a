#!/usr/bin/env python3
"""Writes tests/data/schemas.json: JSON Schemas with texts that grammars made from them must take
and must refuse, each checked against python-jsonschema first.

Usage: tools/make_schema_cases.py      (needs the package jsonschema)

A case is (what, schema, accept, reject, left_out): texts of `accept` are valid by the schema, those
of `reject` are not (or are no JSON), those of `left_out` are valid, but are not generated: for the
order of members, white space, or an escape that is not needed. docs/SCHEMAS.md says which.
Errors are (what, schema, status, part of the message).
"""
import datetime
import ipaddress
import json
import os
import re

import jsonschema

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "data",
                   "schemas.json")
OBJ, ARR, STR = {"type": "object"}, {"type": "array"}, {"type": "string"}
INT, NUM, BOOL = {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
PERSON = {"type": "object", "properties": {"name": STR, "age": INT}, "required": ["name", "age"],
          "additionalProperties": False}
LIST = {"$defs": {"node": {"type": "object", "properties": {
            "value": INT, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["value", "next"], "additionalProperties": False}},
        "$ref": "#/$defs/node"}
EXPRESSION = {"$defs": {"e": {"anyOf": [
    INT,
    {"type": "object", "properties": {"left": {"$ref": "#/$defs/e"}, "add": {"$ref": "#/$defs/e"}},
     "required": ["left", "add"], "additionalProperties": False},
    {"type": "object", "properties": {"left": {"$ref": "#/$defs/e"}, "mul": {"$ref": "#/$defs/e"}},
     "required": ["left", "mul"], "additionalProperties": False}]}}, "$ref": "#/$defs/e"}


def closed(properties, required=None, **more):
    return dict({"type": "object", "properties": properties, "additionalProperties": False,
                 "required": list(properties) if required is None else required}, **more)


def string(**more):
    return dict(STR, **more)


CASES = [
    # ---- values of any kind
    ("any value", {}, ["null", "true", "0", "-1.5e+3", '""', "[]", "{}", '[1,{"a":[]}]'],
     ["", "nul", "01", "+1", ".5", "1.", "1e", "'a'", "[1,]", '{"a"}', '{a:1}', "[1", "tru e"],
     [" 1", "1 ", "1e100", "1.0e-100", "[1 ,2]", '{"a" :1}', "1234567890123456789"]),
    ("types in a list", {"type": ["string", "null", "integer"]}, ['"a"', "null", "7"],
     ["1.5", "true", "[]", "{}"], ["1.0"]),
    ("booleans and null", {"type": ["boolean", "null"]}, ["true", "false", "null"],
     ["True", "0", '"true"', "nulll"], []),
    # ---- white space
    ("white space", PERSON,
     ['{"name":"x","age":3}', '{"name": "x", "age": 3}', '{\n  "name": "x",\n  "age": 3\n}',
      '{\n\t"name":"x",\n\t"age":3\n}', '{ "name": "x", "age": 3 }'],
     ['{"name":"x""age":3}', '{"name":"x","age":3,}', '{"name":"x","age":3',
      '{,"name":"x","age":3}',
      '{"name":"x","age":3}}'],
     ['{  "name":"x","age":3}', '{\n\n"name":"x","age":3}', '{"name" :"x","age":3}',
      '{"name":  "x","age":3}', '{"name":"x","age":3 \n}', '{"name":"x" ,"age":3}',
      '{"name":"x","age":3}\n', '\n{"name":"x","age":3}',
      '{\n' + 33 * " " + '"name":"x","age":3}', '{\r\n"name":"x","age":3}',
      '{\n \t"name":"x","age":3}']),
    # ---- strings
    ("strings", STR,
     ['""', '"a b"', '"é中\U0001f980"', r'"\"\\\/\b\f\n\r\t"', r'"\u00e9\u4E2d\uD83E\udd80"',
      r'"\u0001"', r'"\ud7ff\ue000\uffff"', '"\x7f"'],
     ['"', '"a', 'a"', r'"\x41"', r'"\u12"', r'"\u012"', r'"\u0"', r'"\u12g4"', '"\n"', '"\t"',
      '"\x00"', '"a"b"',
      r'"\ud83e\ud83e"a', "'a'"],
     [r'"\u0000"', r'"\ud83e"', r'"\udd80"', r'"\ud83ea"', r'"\ud83e\u0041"']),
    ("lengths in characters", string(minLength=2, maxLength=3),
     ['"ab"', '"abc"', '"é中"', '"\U0001f980\U0001f980\U0001f980"', r'"\ud83e\udd80a"', r'"\n\n"',
      r'"\u0041b"'], ['""', '"a"', '"abcd"', r'"\ud83e\udd80"', '"é中é中"'], []),
    ("no characters", string(maxLength=0), ['""'], ['"a"', r'"\n"'], []),
    ("at least", string(minLength=3), ['"abc"', '"' + 99 * "x" + '"'], ['"ab"', '""'], []),
    # ---- patterns
    ("pattern as a whole", string(pattern="^[a-z]{2,3}-[0-9]+$"), ['"ab-1"', '"abc-999"'],
     ['"a-1"', '"abcd-1"', '"ab-"', '"ab-1x"', '"-ab-1"', '""'], []),
    ("pattern anywhere", string(pattern="b+"), ['"b"', '"abbbc"', r'"\nb\""'],
     ['""', '"ac"', '"B"'], [r'"\u0062"']),
    ("pattern at the beginning", string(pattern="^ab"), ['"ab"', '"abc"', '"abab"'],
     ['"a"', '"xab"', '""'], []),
    ("pattern at the end", string(pattern="ab$"), ['"ab"', '"xab"'], ['"abx"', '"b"'], []),
    ("anchors of alternatives", string(pattern="^a|b$"), ['"a"', '"ax"', '"xb"', '"b"'],
     ['""', '"xa"', '"bx"', '"x"'], []),
    ("groups", string(pattern="^(?:a|(?<n>bc)){2}(d)?$"), ['"aa"', '"bcad"', '"bcbc"'],
     ['"a"', '"aaa"', '"abd"', '"ddd"'], []),
    ("classes", string(pattern=r"^[\]\-a-c^]\d\D\w\W\s\S.$"),
     [r'"]1aA! x\""', '"-0_b-\u3000é."', r'"^9\nz \t\\中"'],
     ['"d1aA! x."', '"]aaA! x."', '"]11A! x."', r'"]1aA! x\n"', '"]1aA! x"'], []),
    ("negated class", string(pattern=r'^[^"\\a]$'), ['"b"', '"é"', r'"\n"', r'"\u0001"'],
     ['"a"', r'"\""', r'"\\"', '""', '"bb"'], []),
    ("quantifiers", string(pattern="^a?b*c+d{2}e{1,}f{0,2}g*?$"),
     ['"cdde"', '"abbccddeeffg"'], ['"dde"', '"cdd"', '"cde"', '"cddefff"', '"aacdde"'], []),
    ("braces that are none", string(pattern="^a{x}{y$"), ['"a{x}{y"'], ['"a"', '"ax"'], []),
    ("escapes", string(pattern=r"^\t\x41\u00e9\uD83E\uDD80\u{1F980}\.\/\$$"),
     ['"\\tAé\U0001f980\U0001f980./$"'], ['"\\tAé\U0001f980\U0001f980x/$"', '"tA"'],
     ['"\\u0009Aé\U0001f980\U0001f980./$"']),
    ("pattern and lengths", string(pattern="^(?:ab)*c?$", minLength=2, maxLength=5),
     ['"ab"', '"abc"', '"abab"', '"ababc"'], ['""', '"c"', '"ababab"', '"abca"'], []),
    ("pattern found within lengths", string(pattern="x", maxLength=3), ['"x"', '"axb"', '"xxx"'],
     ['""', '"abc"', '"abcx"'], []),
    ("characters that are escaped count once", string(pattern=r'^["\n]+$', maxLength=2),
     [r'"\""', r'"\n\""'], [r'"\n\n\n"', '""'], []),
    # ---- formats
    ("date", string(format="date"), ['"2024-02-29"', '"2000-02-29"', '"1999-12-31"'],
     ['"2023-02-29"', '"1900-02-29"', '"2024-04-31"', '"2024-13-01"', '"2024-1-1"', '""'], []),
    ("time", string(format="time"), ['"23:59:59Z"', '"00:00:00.5+02:00"'],
     ['"24:00:00Z"', '"12:60:00Z"', '"12:00"', '"12:00:00"'], ['"12:00:00z"']),
    ("date-time", string(format="date-time"), ['"2024-02-29T12:30:00Z"',
                                                '"2024-02-28T12:30:00.123456-08:00"'],
     ['"2024-02-30T12:30:00Z"', '"2024-02-28T25:30:00Z"', '"2024-02-28"'],
     ['"2024-02-28 12:30:00Z"']),
    ("duration", string(format="duration"), ['"P1Y2M3D"', '"PT5M"', '"P1DT12H"', '"P4W"'],
     ['"P"', '"PT"', '"1D"', '"P1W2D"', '"P1S"'], []),
    ("uuid", string(format="uuid"), ['"123e4567-E89B-12d3-a456-426614174000"'],
     ['"123e4567-e89b-12d3-a456"', '"123e4567-e89b-12d3-a456-42661417400g"'], []),
    ("email", string(format="email"), ['"a@b.co"', '"a.b+c@x-y.example.org"'],
     ['"a"', '"ab.co"', '""'], ['"\\"a b\\"@example.org"']),
    ("email within a length", string(format="email", maxLength=8), ['"a@b.co"', '"ab@cd.ef"'],
     ['"abc@def.gh"'], []),
    ("hostname", string(format="hostname"), ['"a"', '"www.example-1.org"'],
     ['"-a"', '"a-"', '"a..b"', '""', '"a_b"'], []),
    ("ipv4", string(format="ipv4"), ['"0.0.0.0"', '"255.249.199.10"'],
     ['"256.1.1.1"', '"1.1.1"', '"1.1.1.1.1"', '"01.1.1.1"'], []),
    ("ipv6", string(format="ipv6"), ['"::"', '"::1"', '"fe80::1:2"', '"1:2:3:4:5:6:7:8"', '"1::"'],
     ['":"', '":::"', '"1:2:3"', '"1::2::3"', '"12345::"', '"1:2:3:4:5:6:7:8:9"'],
     ['"::ffff:1.2.3.4"']),
    ("uri", string(format="uri"), ['"https://example.org"', '"http://a.b:80/c/d?e=f#g"'],
     ['"example.org"', '"/a"', '"http://a b"'], ['"mailto:a@b.co"']),
    ("unknown formats say nothing", string(format="no-such-format"), ['"x"'], ["1"], []),
    # ---- numbers
    ("integers", INT, ["0", "-1", "123456789012345678"], ["00", "1.5", "-", "+1", "0x1", '"1"'],
     ["-0", "1.0", "1e3", "1234567890123456789"]),
    ("numbers", NUM, ["0", "-0", "0.5", "-12.25", "1e5", "1E+5", "2.5e-07"],
     ["00.5", ".5", "5.", "1e", "1e+", "--1", "NaN", "Infinity", '"1"', "1.e5"],
     ["1e100", "0." + 18 * "1"]),
    ("integers within bounds", dict(INT, minimum=-12, maximum=130),
     ["-12", "-11", "-9", "-1", "0", "9", "10", "99", "100", "129", "130"],
     ["-13", "-20", "-100", "131", "140", "200", "1000", "1.5"], ["-0"]),
    ("integers beyond a bound", dict(INT, exclusiveMinimum=99), ["100", "999", "1000", "99999"],
     ["99", "98", "0", "-100"], []),
    ("integers below a negative one", dict(INT, maximum=-100), ["-100", "-101", "-999", "-1000"],
     ["-99", "-1", "0", "100"], []),
    ("integers between fractions", dict(INT, minimum=1.5, maximum=3.5), ["2", "3"],
     ["1", "4", "2.5"], []),
    ("the tighter of two bounds", dict(INT, minimum=3, exclusiveMinimum=3, maximum=9,
                                       exclusiveMaximum=12), ["4", "9"], ["3", "10", "2"], []),
    ("numbers within bounds", dict(NUM, minimum=0, maximum=1),
     ["0", "1", "0.5", "1.0", "0.999", "0.0"], ["1.1", "-0.1", "2", "1.001", "-1", "10"],
     ["-0", "1e-1", "-0.0"]),
    ("numbers within open bounds", dict(NUM, exclusiveMinimum=-1.5, exclusiveMaximum=0.25),
     ["-1.4", "-1.499", "0.249", "-1", "0"], ["-1.5", "0.25", "-1.50", "0.250", "0.3", "-2"], []),
    ("a small range", dict(NUM, minimum=10.25, maximum=10.251), ["10.25", "10.2505", "10.251"],
     ["10.24", "10.2511", "10.26", "10", "11"], []),
    ("bounds beyond all digits", dict(NUM, minimum=-1e300, maximum=1e300), ["0", "-5.5", "1" * 18],
     [], ["1e5"]),
    ("decimal places", dict(NUM, multipleOf=0.01), ["1", "1.5", "1.25", "-0.01"],
     ["1.255", "0.001"], []),
    ("whole numbers by multipleOf", dict(NUM, multipleOf=1), ["1", "-20"], ["1.5"], ["1.0"]),
    # ---- known values
    ("enum", {"enum": ["a", "ab", 'q"\\', 1, -2.5, None, True, {"x": [1, 2], "y": {}}, []]},
     ['"a"', '"ab"', r'"q\"\\"', "1", "-2.5", "null", "true", '{"x":[1,2],"y":{}}',
      '{\n "x": [1, 2],\n "y": {}\n}', "[]"],
     ['"abc"', '""', "2", "false", '{"x":[1]}', '{"x":[1,2]}', '"b"', "[1]"],
     ['{"y":{},"x":[1,2]}', "1.0", r'"\u0061"']),
    ("enum of a type", {"type": "string", "enum": ["a", 1, "b", None]}, ['"a"', '"b"'],
     ["1", "null", '"c"'], []),
    ("const", {"const": {"a": 1.5}}, ['{"a":1.5}', '{"a": 1.5}'], ['{"a":1}', '{}', '1.5'], []),
    ("const and enum", {"const": "b", "enum": ["a", "b"]}, ['"b"'], ['"a"'], []),
    ("const of a type", {"type": "integer", "const": 2.0}, ["2.0"], ["3", "2.5"], ["2"]),
    # ---- arrays
    ("arrays of anything", ARR, ["[]", "[ ]", "[1,[2],{}]", "[\n  1,\n  2\n]"],
     ["[,]", "[1 2]", "1", "[1,2"], ["[1 , 2]"]),
    ("items and their number", dict(ARR, items=INT, minItems=1, maxItems=3),
     ["[1]", "[1, 2]", "[1,2,3]"], ["[]", "[1,2,3,4]", '["a"]', "[1,null]"], []),
    ("no items", dict(ARR, maxItems=0), ["[]", "[ ]"], ["[1]"], []),
    ("many items", dict(ARR, items=BOOL, minItems=100), ["[" + 99 * "true," + "false]"],
     ["[" + 98 * "true," + "false]", "[]"], []),
    ("first places", dict(ARR, prefixItems=[STR, INT]),
     ["[]", '["a"]', '["a",1]', '["a", 1, null, {}]'], ["[1]", '["a","b"]'], []),
    ("first places only", dict(ARR, prefixItems=[STR, INT], items=False, minItems=1),
     ['["a"]', '["a",1]'], ["[]", '["a",1,2]'], []),
    ("first places and others", dict(ARR, prefixItems=[STR], items=INT, minItems=2, maxItems=3),
     ['["a",1]', '["a",1,2]'], ['["a"]', '["a",1,2,3]', '["a","b"]'], []),
    ("nested arrays", dict(ARR, items=dict(ARR, items=INT)), ["[]", "[[]]", "[[1],[2,3]]"],
     ["[1]", "[[[]]]"], []),
    # ---- objects
    ("members in their order", PERSON, ['{"name":"","age":0}'],
     ["{}", '{"name":"x"}', '{"age":1}', '{"name":1,"age":1}', '{"name":"x","age":1,"b":1}'],
     ['{"age":1,"name":"x"}', r'{"n\u0061me":"x","age":1}']),
    ("members that may be left out", closed({"a": INT, "b": INT, "c": INT}, ["b"]),
     ['{"b":1}', '{"a":1,"b":1}', '{"b":1,"c":1}', '{"a":1, "b":1, "c":1}'],
     ["{}", '{"a":1}', '{"a":1,"c":1}', '{"b":1,}', '{"b":1,"d":1}'],
     ['{"b":1,"a":1}']),
    ("all may be left out", closed({"a": INT, "b": INT}, []),
     ["{}", "{ }", '{"a":1}', '{"b":1}', '{"a":1,"b":2}'], ['{"c":1}', '{,}', '{"a":1,}'], []),
    ("other members", {"type": "object", "properties": {"ab": INT, "abc": STR}},
     ["{}", '{"ab":1}', '{"x":null}', '{"ab":1,"abc":"","abcd":[],"a":1,"":2,"b":3}',
      '{"abé":1,"\\n":2,"abc\\"":3}', '{"é":{"ab":"free"}}'],
     ['{"ab":"x"}', '{"abc":1}', '{"x":1,"ab":"x"}'],
     ['{"x":1,"ab":1}', r'{"x":1,"\u0061":1}']),
    ("others of a type", {"type": "object", "properties": {"a": STR}, "required": ["a"],
                          "additionalProperties": INT},
     ['{"a":"x"}', '{"a":"x","b":1,"c":2}'], ['{"a":1}', '{"b":1}', '{"a":"x","b":"y"}'], []),
    ("names beyond ASCII", {"type": "object", "properties": {"é": INT, "è": INT, "\n": INT}},
     ['{"é":1,"è":2,"\\n":3,"ê":"free","e":"free"}'], ['{"é":"x"}', '{"\\n":"x"}'], []),
    ("maps", {"type": "object", "additionalProperties": INT, "minProperties": 1,
              "maxProperties": 2}, ['{"a":1}', '{"a":1,"b":2}'],
     ["{}", '{"a":1,"b":2,"c":3}', '{"a":"x"}'], []),
    ("required without a schema", {"type": "object", "required": ["a", "b"]},
     ['{"a":1,"b":null}', '{"a":1,"b":2,"c":3}'], ["{}", '{"a":1}', '{"b":1}'],
     ['{"b":1,"a":2}', '{"a":1,"c":3,"b":2}']),
    ("objects meant without saying so", {"properties": {"a": INT}, "required": ["a"]},
     ['{"a":1}'], ['{"a":"x"}', "{}"], ["1", "[]", "null"]),
    ("a member that never is", closed({"a": INT, "b": False}, ["a"]), ['{"a":1}'],
     ['{"a":1,"b":1}', "{}"], []),
    ("numbers of members that are fixed", closed({"a": INT}, ["a"], minProperties=1,
                                                 maxProperties=3), ['{"a":1}'], ["{}"], []),
    # ---- combinations
    ("anyOf", {"anyOf": [STR, dict(INT, minimum=5), {"type": "null"}]}, ['"a"', "5", "null"],
     ["4", "true", "5.5"], []),
    ("anyOf with keywords beside it",
     {"type": "object", "properties": {"a": INT, "b": INT}, "additionalProperties": False,
      "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
     ['{"a":1}', '{"b":1}', '{"a":1,"b":2}'], ["{}", '{"c":1}'], []),
    ("oneOf of things that differ", {"oneOf": [closed({"kind": {"const": "a"}, "x": INT}),
                                               closed({"kind": {"const": "b"}, "y": STR})]},
     ['{"kind":"a","x":1}', '{"kind":"b","y":"z"}'],
     ['{"kind":"a","y":"z"}', '{"kind":"c","x":1}', '{"kind":"b"}'], []),
    ("allOf", {"allOf": [{"type": "object", "properties": {"a": dict(INT, minimum=3)},
                          "required": ["a"]},
                         {"properties": {"a": {"maximum": 5}, "b": STR}, "required": ["b"]}]},
     ['{"a":3,"b":"x"}', '{"a":5,"b":"","c":1}'],
     ['{"a":2,"b":"x"}', '{"a":6,"b":"x"}', '{"a":3}', '{"b":"x"}', '{"a":"3","b":"x"}'],
     ['{"b":"x","a":4}']),
    ("allOf of numbers", {"allOf": [NUM, INT, {"minimum": 2}, {"minimum": 4}, {"maximum": 6}]},
     ["4", "6"], ["3", "7", "4.5"], []),
    ("allOf of types", {"allOf": [{"type": ["string", "integer"]}, {"type": ["number", "null"]}]},
     ["1", "-7"], ["1.5", '"a"', "null"], []),
    ("allOf of enums", {"allOf": [{"enum": ["a", "b", "c"]}, {"enum": ["c", "b", "d"]}]},
     ['"b"', '"c"'], ['"a"', '"d"'], []),
    ("allOf that closes", {"allOf": [closed({"a": INT}, []), {"properties": {"b": INT}}]},
     ["{}", '{"a":1}'], ['{"b":1}', '{"a":1,"b":1}'], []),
    ("allOf of one", {"allOf": [{"$ref": "#/$defs/n"}], "title": "t", "$defs": {"n": INT}}, ["1"],
     ['"a"', "1.5"], []),
    ("a reference with keywords beside it",
     {"$defs": {"n": dict(INT, minimum=0)}, "$ref": "#/$defs/n", "maximum": 9}, ["0", "9"],
     ["-1", "10"], []),
    ("references", {"$defs": {"a/b~c%": INT, "list": {"type": "array", "items":
                                                      {"$ref": "#/$defs/a~1b~0c%25"}}},
                    "type": "object", "properties": {"l": {"$ref": "#/$defs/list"}},
                    "required": ["l"], "additionalProperties": False},
     ['{"l":[]}', '{"l":[1,2]}'], ['{"l":["a"]}', '{"l":1}'], []),
    ("a reference into a list", {"anyOf": [dict(ARR, items={"$ref": "#/anyOf/1"}), INT]},
     ["1", "[1,2]"], ['["a"]', "[[1]]"], []),
    ("recursion", LIST, ['{"value":1,"next":null}', '{"value":1,"next":{"value":2,"next":null}}'],
     ['{"value":1}', '{"value":1,"next":{}}', '{"value":1,"next":{"value":2,"next":null}'], []),
    ("recursion at the root", {"type": "array", "items": {"$ref": "#"}}, ["[]", "[[],[[]]]"],
     ["[1]", "[[]"], []),
    ("ways that begin alike", EXPRESSION,
     ["1", '{"left":{"left":{"left":1,"add":2},"mul":3},"add":{"left":4,"mul":5}}',
      '{"left":' * 6 + "1" + ',"mul":2}' * 6],
     ['{"left":1}', '{"left":{"left":1,"add":2},"sub":3}', '{"left":1,"add":2,"mul":3}'], []),
    ("what a validation library writes",
     {"$defs": {"Kind": {"enum": ["x", "y"], "title": "Kind", "type": "string"},
                "Point": {"properties": {"at": {"default": None, "title": "At", "anyOf":
                                                [{"type": "number"}, {"type": "null"}]},
                                         "kind": {"$ref": "#/$defs/Kind", "description": "which"}},
                          "required": ["kind"], "title": "Point", "type": "object"}},
      "properties": {"points": {"items": {"$ref": "#/$defs/Point"}, "title": "Points",
                                "type": "array"},
                     "names": {"additionalProperties": {"type": "string"}, "type": "object",
                               "title": "Names"}},
      "required": ["points"], "title": "Shape", "type": "object"},
     ['{"points":[]}', '{"points":[{"at":1.5,"kind":"x"},{"kind":"y"}],"names":{"a":"b"}}'],
     ['{"names":{}}', '{"points":[{"at":1}]}', '{"points":[{"kind":"z"}]}',
      '{"points":[],"names":{"a":1}}'], []),
    ("older tuples", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
                      "items": [STR, INT], "additionalItems": False}, ["[]", '["a",1]'],
     ["[1]", '["a",1,2]'], []),
    ("keywords that refuse nothing", {"type": "array", "uniqueItems": False, "title": "t",
                                      "unevaluatedItems": True, "x-own": 1}, ["[1,1]"], ["1"], []),
]

ERRORS = [
    ("not a keyword we have", {"type": "object", "properties": {"a": {"not": {}}}}, "UNSUPPORTED",
     "#/properties/a/not"),
    ("if", {"if": {}, "then": {}}, "UNSUPPORTED", "#/if"),
    ("unique items", dict(ARR, uniqueItems=True), "UNSUPPORTED", "#/uniqueItems"),
    ("patterns of names", dict(OBJ, patternProperties={"^a": INT}), "UNSUPPORTED",
     "#/patternProperties"),
    ("multiples", dict(INT, multipleOf=3), "UNSUPPORTED", "#/multipleOf"),
    ("remote reference", {"$ref": "https://example.org/s.json"}, "UNSUPPORTED", "example.org"),
    ("anchor", {"$ref": "#name"}, "UNSUPPORTED", "#name"),
    ("reference to nothing", {"items": {"$ref": "#/$defs/no"}, "type": "array"}, "BAD_INPUT",
     "#/items: $ref \"#/$defs/no\" leads nowhere"),
    ("unknown type", {"properties": {"a": {"type": "text"}}}, "BAD_INPUT", "#/properties/a/type"),
    ("type of a wrong kind", {"type": 3}, "BAD_INPUT", "#/type"),
    ("schema of a wrong kind", dict(ARR, items=3), "BAD_INPUT", "#/items"),
    ("bound of a wrong kind", dict(INT, minimum="3"), "BAD_INPUT", "#/minimum"),
    ("negative count", string(minLength=-1), "BAD_INPUT", "#/minLength"),
    ("fractional count", dict(ARR, maxItems=1.5), "BAD_INPUT", "#/maxItems"),
    ("enum of a wrong kind", {"enum": "a"}, "BAD_INPUT", "#/enum"),
    ("anyOf without schemas", {"anyOf": []}, "BAD_INPUT", "#/anyOf"),
    ("allOf of a wrong kind", {"allOf": {}}, "BAD_INPUT", "#/allOf"),
    ("required of a wrong kind", dict(OBJ, required=[1]), "BAD_INPUT", "#/required"),
    ("enum with a length", {"enum": ["a"], "minLength": 1}, "UNSUPPORTED", "#/minLength"),
    ("look-around", string(pattern="^(?=a)b"), "UNSUPPORTED", "#/pattern"),
    ("back-reference", string(pattern=r"^(a)\1$"), "UNSUPPORTED", "#/pattern"),
    ("word border", string(pattern=r"\ba"), "UNSUPPORTED", "#/pattern"),
    ("Unicode property", string(pattern=r"\p{L}"), "UNSUPPORTED", "#/pattern"),
    ("anchor in a group", string(pattern="(^a)"), "UNSUPPORTED", "#/pattern"),
    ("open group", string(pattern="(a"), "BAD_INPUT", "expected ) at character 3"),
    ("open class", string(pattern="[a"), "BAD_INPUT", "expected ]"),
    ("closed group", string(pattern="a)"), "BAD_INPUT", "at character 2"),
    ("nothing to repeat", string(pattern="a|*"), "BAD_INPUT", "nothing to repeat at character 4"),
    ("wrong range", string(pattern="[b-a]"), "BAD_INPUT", "range"),
    ("wrong bounds", string(pattern="a{3,2}"), "BAD_INPUT", "bounds"),
    ("half of a pair", string(pattern=r"\ud83e"), "BAD_INPUT", "pair"),
    ("two patterns", {"allOf": [string(pattern="a"), string(pattern="b")]}, "UNSUPPORTED",
     "\"pattern\""),
    ("places that cannot be joined",
     {"allOf": [dict(ARR, prefixItems=[INT]), dict(ARR, items=STR)]}, "UNSUPPORTED", "prefixItems"),
    ("lengths that leave nothing", string(minLength=3, maxLength=2), "BAD_INPUT", "nothing"),
    ("range that leaves nothing", dict(INT, minimum=3, maximum=2), "BAD_INPUT", "nothing"),
    ("range without whole numbers", dict(INT, exclusiveMinimum=1, exclusiveMaximum=2), "BAD_INPUT",
     "nothing"),
    ("required but forbidden", closed({"a": INT}, ["a", "b"]), "BAD_INPUT", "nothing"),
    ("empty enum", {"enum": []}, "BAD_INPUT", "nothing"),
    ("types that exclude each other", {"allOf": [STR, INT]}, "BAD_INPUT", "nothing"),
    ("endless recursion", {"$defs": {"a": dict(ARR, items={"$ref": "#/$defs/a"}, minItems=1)},
                           "$ref": "#/$defs/a"}, "BAD_INPUT", "nothing"),
    ("recursion before anything", {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, INT]}},
                                   "$ref": "#/$defs/a"}, "BAD_INPUT",
     "#/$defs/a begins with itself"),
    ("recursion by allOf", {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, INT]}},
                            "$ref": "#/$defs/a"}, "UNSUPPORTED", "levels"),
    ("optional properties and their number", closed({"a": INT, "b": INT}, [], minProperties=1),
     "UNSUPPORTED", "#/minProperties"),
]

checker = jsonschema.FormatChecker(("ipv4", "uuid"))


def checks(name, *errors):
    return checker.checks(name, raises=errors or ValueError)


@checks("ipv6")
def is_ipv6(x):
    return not isinstance(x, str) or ipaddress.IPv6Address(x)


@checks("date")
def is_date(x):
    return re.fullmatch(r"\d{4}-\d\d-\d\d", x) and datetime.date.fromisoformat(x)


@checks("time")
def is_time(x):
    return re.search("([Zz]|[+-]..:..)$", x) and datetime.time.fromisoformat(x.replace("z", "Z"))


@checks("date-time")
def is_date_time(x):
    return re.search("(Z|[+-]..:..)$", x) and datetime.datetime.fromisoformat(x)


@checks("duration")
def is_duration(x):
    return re.fullmatch(r"P(\d+W|(?=.)(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)", x)


@checks("email")
def is_email(x):
    return re.fullmatch(r'("[^"]+"|[^@\s"]+)@[\w-]+(\.[\w-]+)+', x)


@checks("hostname")
def is_hostname(x):
    return all(re.fullmatch("[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", p) for p in x.split("."))


@checks("uri")
def is_uri(x):
    return re.fullmatch(r"[a-z][a-z0-9+.-]*:[^\s]+", x)


def no_constant(name):
    raise ValueError(name)


def is_valid(validator, text):
    try:
        value = json.loads(text, parse_constant=no_constant)
    except ValueError:
        return False
    return validator.is_valid(value)


def python_pattern(schema):
    """The schema with its patterns as Python writes them."""
    if isinstance(schema, list):
        return [python_pattern(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: python_pattern(v) for k, v in schema.items()}
    if isinstance(out.get("pattern"), str):
        p = out["pattern"].replace("$", r"\Z").replace("\\\\Z", r"\$").replace("(?<n>", "(?P<n>")
        p = re.sub(r"\\uD83E\\uDD80|\\u\{1F980\}", "\U0001f980", p)
        out["pattern"] = p.replace(r"\w", "[A-Za-z0-9_]").replace(r"\W", "[^A-Za-z0-9_]")
    return out


def main():
    cases = []
    for what, schema, accept, reject, left_out in CASES:
        draft = jsonschema.Draft7Validator if "draft-07" in str(schema) \
            else jsonschema.Draft202012Validator
        draft.check_schema(python_pattern(schema))
        validator = draft(python_pattern(schema), format_checker=checker)
        for texts, wanted in ((accept, True), (reject, False), (left_out, True)):
            for text in texts:
                if is_valid(validator, text) != wanted:
                    raise SystemExit("%s: %r should be %svalid" % (what, text,
                                                                   "" if wanted else "in"))
        cases.append({"what": what, "schema": schema, "accept": accept, "reject": reject,
                      "left_out": left_out})
    errors = [{"what": what, "schema": schema, "status": status, "message": message}
              for what, schema, status, message in ERRORS]
    with open(OUT, "w", encoding="utf-8") as stream:
        json.dump({"cases": cases, "errors": errors}, stream, ensure_ascii=True, indent=0)
        stream.write("\n")
    print("%d schemas with %d texts, %d errors" % (
        len(cases), sum(len(c[k]) for c in cases for k in ("accept", "reject", "left_out")),
        len(errors)))


if __name__ == "__main__":
    main()
