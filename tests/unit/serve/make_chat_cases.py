#!/usr/bin/env python3
"""Makes chat_cases.json, the expected texts of test_jinja.c: templates in the style of common models' and pieces of the language, rendered by
Jinja 3 as transformers sets it up. Run it in this folder, with the package jinja2, after a case is added here."""
import json
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

LLAMA3 = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

LLAMA31 = """{{- bos_token }}
{#- Tools may come under another name -#}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}

{#- The system message is taken out #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no user message to put the tools into!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {{- "Call one of these functions with JSON.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model makes one call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {%- if builtin_tools is defined and tool_call.name in builtin_tools %}
            {{- "<|python_tag|>" + tool_call.name + ".call(" }}
            {%- for arg_name, arg_val in tool_call.arguments | items %}
                {{- arg_name + '="' + arg_val + '"' }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- endif %}
                {%- endfor %}
            {{- ")" }}
        {%- else  %}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- "}" }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ \
raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + \
message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ \
raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"""

MISTRAL3 = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs have nine characters!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}\
{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

PHI3 = """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""

CHATML = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

THINKING = """{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- if loop.index0 > ns.last %}{{- 'T:' + thought.strip('\\n') + '\\n' }}{%- endif %}
    {%- endif %}
    {{- loop.index ~ '/' ~ loop.length ~ ' ' ~ message.role.title() ~ ': ' ~ content + '\\n' }}
{%- endfor %}
"""

MACROS = """{%- macro turn(role, text='...', mark=none) -%}
<{{ role }}>{{ text | trim }}{% if mark %}!{{ mark }}{% endif %}</{{ role }}>
{%- endmacro -%}
{% for m in messages %}{{ turn(m.role, m.content) }}
{% endfor %}{{ turn('end') }}{{ turn(role='x', mark=3) }}
{% set whole %}[{{ messages | map(attribute='role') | join('|') }}]{% endset %}
{{ whole }}{{ whole | length }}
"""

USER = [{"role": "user", "content": "  Hello, wörld 你好  "}]
CHAT = [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": " Good day\n"}, {"role": "user", "content": "What's \"up\"?\n"}]
SYSTEM = [{"role": "system", "content": " Be brief. "}] + CHAT
TWO_USERS = [CHAT[0], CHAT[0]]
TOOL = {"type": "function", "function": {"name": "weather", "description": "Weather of a \"city\"", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}}, "required": ["city"]}, "return": None}}
CALLS = [CHAT[0], {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "rate": 0.5}}}]},
    {"role": "tool", "content": "sunny"}, {"role": "tool", "content": "21 °C"}]
THOUGHTS = [CHAT[0], {"role": "assistant", "content": "<think>\nold\n</think>\n\nfirst"}, CHAT[2],
            {"role": "assistant", "content": "<think>\nnew thought\n</think>\n\nsecond"}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}

CHATS = []
for name, template in [("llama 3", LLAMA3), ("llama 3.1", LLAMA31), ("mistral", MISTRAL), ("mistral 0.3", MISTRAL3), ("qwen", QWEN),
                       ("gemma", GEMMA), ("phi 3", PHI3), ("chatml", CHATML), ("thinking", THINKING), ("macros", MACROS)]:
    for label, messages in [("user", USER), ("chat", CHAT), ("system", SYSTEM), ("two users", TWO_USERS), ("thoughts", THOUGHTS)]:
        for prompt in (True, False):
            CHATS.append((f"{name}, {label}{', prompt' if prompt else ''}", template,
                          dict(TOKENS, messages=messages, add_generation_prompt=prompt)))
for name, template in [("llama 3.1", LLAMA31), ("mistral 0.3", MISTRAL3), ("qwen", QWEN)]:
    CHATS.append((f"{name}, tools", template, dict(TOKENS, messages=CHAT, tools=[TOOL, TOOL], add_generation_prompt=True)))
CHATS.append(("llama 3.1, calls", LLAMA31, dict(TOKENS, messages=CALLS, tools=[TOOL], add_generation_prompt=True)))
CHATS.append(("llama 3.1, builtin", LLAMA31, dict(TOKENS, messages=[CALLS[0], {"role": "assistant", "tool_calls": [
    {"function": {"name": "weather", "arguments": {"city": "Köln", "days": "2"}}}]}], builtin_tools=["weather", "code_interpreter"],
    tools_in_user_message=False)))
CHATS.append(("mistral 0.3, calls", MISTRAL3, dict(TOKENS, messages=CALLS[:2])))
CHATS.append(("qwen, calls", QWEN, dict(TOKENS, messages=CALLS, tools=[TOOL], add_generation_prompt=True)))

VALUES = {"a": 7, "b": -3, "x": 2.5, "s": "Hello World", "e": "", "u": "äöü 你好", "l": [3, 1, 2], "empty": [], "m": {"k": "v", "n": 1, "items": [1]},
          "none_value": None, "yes": True, "no": False, "nested": {"list": [{"a": 1, "role": "r", "t": {"deep": "d"}}, {"a": 2, "role": "q"}]},
          "q": "it's", "qq": "both ' and \"", "w": "  a b\tc\n", "lines": "one\ntwo\n\nthree\n"}
EXPRESSIONS = """1 + 2 * 3|(1 + 2) * 3|7 // 2|-7 // 2|7 % 3|-7 % 3|7 % -3|7 / 2|6 / 2|2 ** 10|2 ** -1|1.5 + 1|x * 2|x // 1|x % 1|-x|-a + 1|+a|10 - 3 - 2
a + b ~ s|1 ~ 2 + 3|"a" ~ 1 ~ none ~ true ~ 2.0|s + "!"|s * 2|l + [4]|"a" "b" 'c'|"tab\\there"|'it\\'s'|"\\u00e4\\x41"|"back\\\\slash"
a == 7|a != 7|a < 8|a <= 7|a > 7|a >= 7|1 < a < 9|1 < a < 5|a == 7.0|true == 1|"1" == 1|l == [3, 1, 2]|m == {"k": "v", "n": 1, "items": [1]}|s < "Jello"|none == none
a in l|3 in l|3 not in l|"ell" in s|"xyz" in s|"k" in m|"z" in m|not a in l|not (3 in l)|"" in s
yes and no|yes or no|not yes|a and s|e or "fallback"|no or e or 0|not e and yes|1 if yes else 2|1 if no else 2|(1 if no)|"x" if a > 5 and b < 0 else "y"|1 if no else 2 if no else 3
s[0]|s[-1]|s[99]|s[1:4]|s[:-1]|s[-3:]|s[::-1]|s[::2]|s[6:]|s[:3]|s[5:2]|u[0]|u[1:5]|u[::-1]|u|length|l[0]|l[-1]|l[1:]|l[::-1]|l[5:]|l[-5:2]|l[0:3:2]|l[2:0:-1]|l.0|l[1]
m.k|m["k"]|m.z|m.z is defined|m["z"] is defined|m.items()|list|m.keys()|list|m.values()|list|m.get("k")|m.get("z")|m.get("z", 4)|m.k.upper()|nested.list[0].a|nested.list[0]["t"].deep|nested.list[-1].role
missing is defined|missing is undefined|missing|missing == missing2|a is defined|none_value is none|none_value|a is none|s is string|a is string|a is number|x is number|x is float|a is integer|yes is boolean|yes is true|no is false|m is mapping|l is mapping|l is iterable|s is iterable|a is iterable|l is sequence|a is odd|a is even|a is divisibleby 7|a is divisibleby(2)|a is equalto 7|a is eq(8)|a is ne 8|a is gt 3|a is lt(3)|a is ge 7|a is le 6|a is in [7]|"x" is in "xyz"|a is not none|not a is none|m is not mapping|range is callable|yes is not true|1 is sameas true|true is sameas true|no is sameas(false)|none_value is sameas none|0 is sameas false|1 is sameas 1.0|s is sameas s|l is sameas l|l is sameas [3, 1, 2]|m is sameas m|{} is sameas {}
s | upper|s | lower|"hello WORLD" | capitalize|"hello wORLD-x (it)" | title|"they're bill's".title()|w | trim|w.strip()|w.lstrip()|w.rstrip()|"xxhixx".strip("x")|"abcba".strip("ab")|"..a..".lstrip(".")|"..a..".rstrip(".")|"--x--" | trim("-")|"\\u3000a\\u00a0" | trim
s | length|l | length|m | length|e | length|s | count|l | first|l | last|s | first|s | last|l | join|l | join(", ")|["a", 1, none] | join("-")|nested.list | join(",", attribute="a")|s | list|m | list|s | reverse|l | reverse | list
m | tojson|l | tojson|m | tojson(indent=2)|nested | tojson(indent=4)|[] | tojson(indent=2)|{} | tojson(indent=2)|u | tojson|qq | tojson|"a\\nb\\t\\u0001" | tojson|none | tojson|x | tojson|1.0 | tojson|0.1 | tojson|yes | tojson|"<&>" | tojson|{"a": [1, {"b": none}]} | tojson|m | tojson(ensure_ascii=False)|u | tojson(False)|m | tojson(none, 2)|nested | tojson(false, 4)|m | tojson(indent=none, ensure_ascii=false)|nested | tojson(separators=(',', ':'))|nested | tojson(False, 1, [';', '='])|l | tojson(separators=none)|{"b": {"d": 1, "c": 2}, "ab": [{"z": 1, "y": 2}], "a": 0, "ä": 1, "😀": 2, "～": 3} | tojson(sort_keys=true)|m | tojson(False, 1, none, True)|m | tojson(sort_keys=no)
1 if empty | select else 2|1 if empty | selectattr("a") else 2|1 if empty | map("upper") else 2|1 if empty | reverse else 2|1 if {} | items else 2|1 if {}.items() else 2|1 if empty | select | list else 2|1 if e | reverse else 2
missing | default("d")|missing | d("d")|e | default("d")|e | default("d", true)|none_value | default("d")|none_value | default("d", true)|a | default("d")|missing | default|no | default("z", boolean=true)
s | replace("o", "0")|s | replace("o", "0", 1)|s.replace("l", "")|s.replace("zz", "y")|"aaa".replace("a", "bb")|"aaa".replace("a", "b", 2)|m | items | list|"12" | int|"x" | int|"x" | int(5)|"3.7" | float|3.7 | int|7 | string + "s"|-5 | abs|(-5) | abs|7 | float|yes | int
s.startswith("He")|s.startswith("x")|s.endswith("ld")|s.startswith(("x", "He"))|s.split(" ")|s.split("o")|s.split("o", 1)|w.split()|"".split()|"a,,b".split(",")|",a,".split(",")|"a b c".split(" ", 1)[1]|" a b  c ".split(none, 1)|lines.splitlines()|s.find("World")|s.find("zz")|u.find("你")|"banana".count("an")|", ".join(["a", "b"])|"abc".removeprefix("a")|"abc".removesuffix("c")|"12".isdigit()|"1a".isdigit()|s.upper().lower().title()
l | map("string") | join("+")|nested.list | map(attribute="role") | list|nested.list | map(attribute="nope", default="-") | list|l | select("odd") | list|l | reject("odd") | list|l | select("gt", 1) | list|["", "a", none] | select | list|nested.list | selectattr("role", "equalto", "q") | list|nested.list | rejectattr("role", "eq", "q") | map(attribute="a") | list|nested.list | selectattr("t", "defined") | list | length|nested.list | selectattr("a") | list | length|nested.list | selectattr("role", "==", "q") | list|nested.list | rejectattr("role", "!=", "q") | map(attribute="a") | list|l | select("<", 2) | list|l | select("<=", 2) | list|l | select(">", 2) | list|l | reject(">=", 2) | list|l | select("greaterthan", 1) | list|l | select("lessthan", 3) | list|3 is greaterthan 2|3 is lessthan(2)|["b", "a"] | map("upper") | join|[["a", "b"], ["c"]] | map("join", ", ") | list|[missing, 1] | map("default", "x") | list|["", 1] | map("default", "x", true) | list|["xay", "a"] | map("replace", "a", "b") | list|" 42 " | int|"42\\n" | int|"0x1A" | int|"9007199254740993" | int|" 1.5 " | float|"1 5" | int(7)|"a ".split(none, 1)|" a  b ".split(none, 2)|"a b ".split(none, 1)|"a b".split(none, 5)|"a".split(none, 3)|"a b ".split(none, 5)
range(5) | list|range(2, 5) | list|range(10, 0, -3) | list|range(0) | list|range(5)[1:] | list|range(3) | length|range(1, 10, 4) | list|dict(a=1, b="x")|dict(a=1).a|namespace(a=3).a
l|m|[]|{}|["a", "it's", q, qq, 1.0, none, true, [1], {"a": "b"}]|1.0|100000.0|1e16 if no else 12345678901234567.0|0.00001|0.1 + 0.2|1.5e3 if no else 3.14|x|yes|no|10000000000000000.0|1e3|2.5e-7|(1,)|(1, 'a')|[(1, 2)] | tojson|1234567.125|[0.5, -0.0]
a if a is defined and a else 0|(s | length) > 3 and "yes"|[1, 2, 3][1]|{"a": {"b": [1, 2]}}.a.b[1]|[[1, 2], [3]][0][1]|"abc"[1]|("a" ~ 1)[1]|(1, 2)[0]|(1, 2) | length|() | length|"%s" is string|{"a": 1,}|"\\U0001F600\\u00e4\\x41"|"\\101\\60\\7x\\1234\\377\\400"|"a\\0b\\08"|"\\d\\q"|[1, 2,]""".replace("\n", "|")
# A bar separates expressions, unless blanks or a filter's name make it a filter.
import re
PIECES = re.split(r"(?<! )\|(?! )", EXPRESSIONS)
JOINED, FILTERS = [], {"length", "list"}
for piece in PIECES:
    if piece in FILTERS:
        JOINED[-1] += "|" + piece
    else:
        JOINED.append(piece)

STATEMENTS = [
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}  \nb\n  {%- endif %}\nc", "a  {%- if yes -%}  b  {%- endif -%}  c", "  {% if yes %}x{% endif %}  ",
    "x {%+ if yes %}\ny{% endif %}", "  {%+ if yes +%}\n  y{% endif %}", "a {# comment #} b\n{# c #}\nd", "a\n   {#- c -#}   \nb", "{{ s }}\n", "{{ s }}\n\n", "\n{{- s -}}\n x", "",
    "a\r\nb\rc\n", "{{ '{{' }}{{ '%}' }}", "{ {% if yes %}{{% endif %}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': 1} }}",
    "{% for i in l %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}<{{ loop.nextitem }};{% endfor %}", "{% for i in empty %}x{% else %}none{% endfor %}", "{% for i in missing %}x{% else %}none{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}:{{ i }} {% else %}-{% endfor %}", "{% for i in l if i > 9 %}{{ i }}{% else %}-{% endfor %}",
    "{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}", "{% for (k, v) in m | items %}{{ k }}={{ v }};{% endfor %}", "{% for k in m %}{{ k }};{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set y = 1 %}{% for i in l %}{% set y = y + i %}{{ y }} {% endfor %}{{ y }}", "{% set ns = namespace(y=1) %}{% for i in l %}{% set ns.y = ns.y + i %}{% endfor %}{{ ns.y }}",
    "{% set y = 1 %}{% if yes %}{% set y = 2 %}{% endif %}{{ y }}", "{% set p, q = 1, 2 %}{{ p + q }}", "{% set p, q = l[:2] %}{{ p }}{{ q }}", "{% set text %}<{{ s }}>{% endset %}{{ text | upper }}",
    "{% if no %}1{% elif e %}2{% elif a %}3{% else %}4{% endif %}", "{% if no %}1{% elif e %}2{% else %}4{% endif %}", "{% if missing %}1{% endif %}",
    "{% macro f(x, y=2) %}{{ x }}-{{ y }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(y=4, x=5) }} {{ f() }}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% set z = 5 %}{% macro f() %}{{ z }}{{ s }}{% endmacro %}{% for i in l %}{% set z = 6 %}{{ f() }}{% endfor %}",
    "{%if yes%}x{%endif%}", "{{-s-}}", "{{ s|upper|lower }}", "{% for i in [1,2] -%}\n  {{ i }}\n{%- endfor %}!",
    "{%- for i in l -%}\n    {{- i -}}\n{%- endfor -%}\n", "{% set dummy = none %}{{ dummy is none }}", "{{ 'a' if no }}|",
    "{% set t = 1 %}{% set b %}{% set t = 2 %}{{ t }}{% endset %}{{ t }}{{ b }}", "{% for i in l %}{% set b %}{{ loop.index }}{{ i }}{% endset %}{{ b }} {% endfor %}",
    "{% set y = 1 %}{% for i in empty %}{% else %}{% set y = 2 %}{{ y }}{% endfor %}{{ y }}",
    "{% for i in [1, 2] %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}", "{% for i in [1, 2] %}{% macro g(x, y=i) %}{{ x }}{{ y }}{{ loop.index }} {% endmacro %}{{ g(i * 2) }}{{ g(0, 0) }}{% endfor %}",
    "{% macro f(x) %}{% set z = x + 1 %}{% macro g(y) %}{{ x }}{{ y }}{{ z }}{{ s }}{% endmacro %}{{ g(5) }}{% endmacro %}{{ f(3) }}",
    "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% macro g(x) %}{{ f() }}{{ x }}{% endmacro %}{{ g(2) }}",
    "{% for i in l %}{% for j in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% set y = 1 %}{% generation %}{% set y = 2 %}{{ y }}{% endgeneration %}{{ y }}", "{% for i in l %}{%- generation -%} {{ i }}{{ loop.index }} {% endgeneration %}{% endfor %}",
    "{{ loop is defined }}", "{% for i in l %}{{ i if loop.first else '+' ~ i }}{% endfor %}",
]
REFUSED = ["{{ missing.x }}", "{{ 1 + 's' }}", "{{ s + 1 }}", "{{ l + 1 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ raise_exception('no ' ~ s) }}", "{% if %}", "{% for x %}{% endfor %}", "{{ 1 + }}", "{{ s", "{% if yes %}", "{% endif %}",
           "{{ (1 }}", "{{ 'abc }}", "{# never", "{% for i in 5 %}{% endfor %}", "{{ 5 | nosuchfilter }}", "{{ 5 is nosuchtest }}", "{% nosuchtag %}", "{{ s.nosuch() }}", "{{ nosuch() }}", "{{ 1 < 's' }}", "{{ none + 1 }}",
           "{{ s[missing.y] }}", "{% set m.k = 1 %}", "{{ range(1000000) }}", "{% break %}", "{{ l[1 }}", "{{ } }}", "{% else %}", "{% for i in l %}{% endif %}", "{{ missing + 1 }}", "{{ a b }}", "{{ '\\x4' }}", "{{ '\\u12g4' }}", "{{ '\\U0001F60' }}", "{{ '\\U00110000' }}"]


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("write"), [], [], body).set_lineno(line)

    def write(self, caller):
        return caller()


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception


def case(name, template, variables):
    row = {"name": name}
    if template in LONG:
        row["of"] = name.split(",")[0]
    elif name != template:
        row["template"] = template
    if variables is not VALUES:
        row["variables"] = variables
    try:
        row["text"] = environment.from_string(template).render(**variables)
    except Exception as error:
        row["refused"] = str(error)
    return row


LONG = {template: name.split(",")[0] for name, template, _ in CHATS}
rows = [case(*chat) for chat in CHATS]
rows += [case(one, "{{ " + one + " }}", VALUES) for one in JOINED] + [case(one, one, VALUES) for one in STATEMENTS]
for row in rows[len(CHATS):]:
    if "refused" in row:
        print("refused:", row["name"], row["refused"])
refused = [case(one, one, VALUES) for one in REFUSED]
for row in refused:
    assert "refused" in row, row
with open("chat_cases.json", "w") as file:
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows + refused)
    templates = ",\n".join(json.dumps(name) + ": " + json.dumps(template) for template, name in LONG.items())
    file.write(f'{{"variables": {json.dumps(VALUES)},\n"templates": {{\n{templates}}},\n"cases": [\n{lines}]}}\n')
print(len(rows), len(refused))
