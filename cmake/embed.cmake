# embed.cmake: the files of a folder as arrays of bytes: page_NAME_EXT in one C include file.
# cmake -DFOLDER=... -DOUT=FILE -P embed.cmake
file(GLOB files ${FOLDER}/*)
get_filename_component(name ${OUT} NAME)
set(text "/* ${name}: made by cmake/embed.cmake. */\n")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND text "static const unsigned char page_${name}[] = {\n${bytes}\n};\n")
endforeach()
file(WRITE ${OUT} "${text}")
